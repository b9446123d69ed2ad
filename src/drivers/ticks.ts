/**
 * Ticks: a census is asked for, and when it has ended, work on what it found. All of it may be
 * repeated and interrupted anywhere: a tick that is under way is a row, and each step has a key.
 */
import { z } from 'zod';
import { REPORT_SUBJECTS, type TickReport, type TickSubject } from '../domain/driver.ts';
import type { Subject } from '../domain/driver-census.ts';
import { nextTick } from '../domain/driver-clock.ts';
import { OutliveError } from '../domain/errors.ts';
import { DRIVER_OWNER } from '../domain/ledger.ts';
import { type Maker, TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { DriverRow } from '../store/drivers.ts';
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { readCensus } from './census.ts';
import { guard, type Refusal, refusal } from './guard.ts';
import { PromptProblem, promptText } from './prompt.ts';
import { censusKey, censusRequest, subjectKey, subjectRequest } from './requests.ts';

export type DriverContext = Pick<
  Context,
  'store' | 'writer' | 'entropy' | 'hub' | 'log' | 'settings' | 'workspace'
>;

/** Thrown inside a transaction, to undo it. */
class Refused extends Error {
  readonly refusal: Refusal;
  constructor(reason: Refusal) {
    super(reason.message);
    this.refusal = reason;
  }
}
class AnotherTick extends Error {}

/** What a later try would be told again, as a sentence; null for the store's troubles and mistakes of ours. */
function refusedText(error: unknown): string | null {
  if (error instanceof z.ZodError) return z.prettifyError(error).replaceAll('\n', ' ');
  if (error instanceof PromptProblem) return error.message;
  return error instanceof OutliveError && error.status < 500 ? error.message : null;
}

/** The 32 bits of randomness that spread ticks, as a fraction. */
const fraction = ({ entropy }: Pick<Context, 'entropy'>): number =>
  Buffer.from(entropy.random(4)).readUInt32BE() / 2 ** 32;

export interface Begun {
  readonly row: DriverRow;
  /** False when a tick was under way, or has begun in the same moment. */
  readonly begun: boolean;
}

export class Ticks {
  private readonly context: DriverContext;
  private readonly supervisor: Pick<Supervisor, 'submit'>;

  constructor(context: DriverContext, supervisor: Pick<Supervisor, 'submit'>) {
    this.context = context;
    this.supervisor = supervisor;
  }

  /** Asks for the census of the next tick. One that cannot be asked for is a tick that failed. */
  begin(row: DriverRow, actor: Maker): Begun {
    const { drivers } = this.context.store;
    const now = (begun: boolean): Begun => ({ row: drivers.get(row.name) ?? row, begun });
    if (row.censusId !== null) return now(false);
    const tick = row.tick + 1;
    try {
      const { created } = this.supervisor.submit(censusRequest(row, tick), {
        idempotencyKey: censusKey(row.name, tick),
        actor,
        // One commit: a crash leaves a tick with its census, or neither.
        within: ({ at }, { id }) => {
          if (!drivers.begin(row, id, at)) throw new AnotherTick();
        },
      });
      if (!created) this.fail(row, 'Its key was used by other work; the next tick has another.');
      return now(true);
    } catch (error) {
      if (error instanceof AnotherTick) return now(false);
      const text = refusedText(error);
      if (text === null) throw error;
      this.fail(row, `The census cannot be asked for: ${text}`);
      return now(true);
    }
  }

  /** Acts on a census that has ended; does nothing while it has not. */
  finish(row: DriverRow): void {
    if (row.censusId === null) return;
    const census = this.context.store.workUnits.get(row.censusId);
    if (census && !TERMINAL_STATUSES.has(census.status)) return;
    const end = census
      ? readCensus(this.context, row, census)
      : ({ ok: false, message: 'Its census is gone.' } as const);
    if (!end.ok) {
      this.close(row, { ok: false, message: end.message, subjects: [], found: 0 });
      return;
    }
    let prompt: string | null;
    try {
      prompt = promptText(row.spec);
    } catch (error) {
      if (!(error instanceof PromptProblem)) throw error;
      const message = `Nothing can be run: ${error.message}.`;
      this.close(row, { ok: false, message, subjects: [], found: end.subjects.length });
      return;
    }
    const subjects = end.subjects.map((subject) => this.advance(row, prompt, subject));
    this.close(row, { ok: true, message: null, subjects, found: subjects.length });
  }

  /** Makes the work on one subject, where the guard lets it. */
  private advance(row: DriverRow, prompt: string | null, subject: Subject): TickSubject {
    const { store, workspace } = this.context;
    const { name, tick } = row;
    const key = subjectKey(name, tick, subject.subject);
    const told = { subject: subject.subject, handle: subject.handle };
    const started = (workUnitId: string): TickSubject => ({
      ...told,
      action: 'started',
      code: null,
      message: null,
      workUnitId,
    });
    // Made before the daemon died in the middle of this tick.
    const owner = { workspaceId: workspace, ownerType: DRIVER_OWNER, ownerId: name };
    const kind = 'external_work_step';
    const made = store.workUnits.getByKey({ ...owner, kind, idempotencyKey: key });
    if (made) return started(made.id);
    const refused = this.tryStart(row, prompt, subject, key);
    return typeof refused === 'string'
      ? started(refused)
      : { ...told, action: 'skipped', ...refused };
  }

  /** @returns the id of the work, or why there is none. */
  private tryStart(
    row: DriverRow,
    prompt: string | null,
    subject: Subject,
    idempotencyKey: string,
  ): string | Refusal {
    const { store } = this.context;
    const question = {
      driver: row.name,
      censusId: row.censusId ?? '',
      subject: subject.subject,
      maxAtOnce: row.spec.maxAtOnce,
    };
    const early = guard(store, question);
    if (early) return early;
    try {
      const request = subjectRequest(row, prompt, subject);
      const { workUnit } = this.supervisor.submit(request, {
        idempotencyKey,
        actor: 'scheduler',
        within: (_, { id }) => {
          const late = guard(store, { ...question, except: id });
          if (late) throw new Refused(late);
        },
      });
      return workUnit.id;
    } catch (error) {
      if (error instanceof Refused) return error.refusal;
      const text = refusedText(error);
      if (text === null) throw error;
      return refusal('unusable', text);
    }
  }

  /** A tick without a census. */
  private fail(row: DriverRow, message: string): void {
    const failed = { ok: false, message, subjects: [], found: 0 };
    this.close(row, failed, row.tick + 1);
  }

  private close(
    row: DriverRow,
    { subjects, ...end }: Pick<TickReport, 'ok' | 'message' | 'subjects' | 'found'>,
    tick = row.tick,
  ): void {
    const { store, writer, entropy, log } = this.context;
    const failures = end.ok ? 0 : row.failures + 1;
    const started = subjects.filter(({ action }) => action === 'started').length;
    writer.commit(({ at }) => {
      const startedAt = row.tickAt ?? at;
      const times = { startedAt: Date.parse(startedAt), now: entropy.now() };
      const due = nextTick(row.spec, { ...times, failures, random: fraction(this.context) });
      store.drivers.finish({
        row,
        report: {
          ...{ tick, censusId: row.censusId, startedAt, endedAt: at },
          ...end,
          started,
          subjects: subjects.slice(0, REPORT_SUBJECTS),
        },
        failures,
        nextAt: due === null ? null : new Date(due).toISOString(),
        at,
      });
    });
    const told = { driver: row.name, tick };
    if (end.ok) log.info({ ...told, found: end.found, started }, 'a driver has looked for work');
    else log.warn({ ...told, failures, message: end.message }, 'a tick of a driver failed');
  }
}
