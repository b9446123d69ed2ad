/**
 * The judge: settles what ended work had to leave behind. Nothing is kept in memory; a row
 * that is pending is looked at when its work unit or its verification ends, and at a start.
 */
import { OutliveError } from '../domain/errors.ts';
import { TERMINAL_EVENT_TYPES } from '../domain/events.ts';
import {
  decideByEvidence,
  decideByVerify,
  type Settled,
  verifyNotRun,
} from '../domain/outcome-verdict.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { OutcomeRow } from '../store/outcomes.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { releaseJudged } from './admission.ts';
import type { Context } from './context.ts';
import { gatherLeft } from './outcome-evidence.ts';
import { verifyEnd, verifyKey, verifyRequest } from './outcome-verify.ts';
import type { Submission, SubmitOptions } from './submit.ts';

/** What is pending for the store's sake is looked at again after this long. */
const RETRY_MS = 5_000;

export interface Judge {
  /** Barrier B: settles what is pending, then what comes. */
  start(): void;
  /** Resolves when nothing is being looked at. */
  rest(): Promise<void>;
  /** What is left is the next daemon's; resolves when the looks under way are over. */
  close(): Promise<void>;
}

/** Another look was first. */
class AlreadySettled extends Error {}

type Submit = (input: StartWorkUnit, options: SubmitOptions) => Submission;

/** One look at a pending row; may be repeated, and interrupted anywhere. */
class Look {
  private readonly context: Context;
  private readonly submit: Submit;
  private readonly closing: AbortSignal;

  constructor(context: Context, submit: Submit, closing: AbortSignal) {
    this.context = context;
    this.submit = submit;
    this.closing = closing;
  }

  /** @returns false when it has to be tried again. */
  async at(row: OutcomeRow): Promise<boolean> {
    if (row.verifyId !== null) {
      this.hear(row, row.verifyId);
      return true;
    }
    const workUnit = this.context.store.workUnits.get(row.workUnitId);
    const contract = workUnit?.request.outcome;
    if (!workUnit || !contract) return true;
    const left = await gatherLeft(this.context, row, workUnit, contract, this.closing);
    if (left === null || this.closing.aborted) return false;
    const decided = decideByEvidence(left, contract.verify !== undefined);
    if (decided !== 'verify') this.settle(row, decided, left.json);
    else if (contract.verify) this.verify(row, workUnit, contract.verify, left.json);
    return true;
  }

  /** Settles what no look will ever decide. */
  giveUp(row: OutcomeRow, error: unknown): void {
    this.settle(row, verifyNotRun(`it cannot be judged: ${String(error)}`), null);
  }

  /** Submits the verification; the row and it know each other in one commit. */
  private verify(
    row: OutcomeRow,
    workUnit: WorkUnitRow,
    asked: Parameters<typeof verifyRequest>[1],
    json: string | null,
  ): void {
    const { outcomes } = this.context.store;
    const options: SubmitOptions = {
      idempotencyKey: verifyKey(row),
      actor: 'system',
      within: (_, { id }) => {
        if (!outcomes.verifiedBy(row, id, json)) throw new AlreadySettled();
      },
    };
    try {
      const { created } = this.submit(verifyRequest(workUnit, asked), options);
      // Another one's, under our key: what it ran is not known to be what was left.
      if (!created) this.settle(row, verifyNotRun('its key was used by other work'), json);
    } catch (error) {
      if (error instanceof AlreadySettled) return;
      if (!isRefusal(error)) throw error;
      this.settle(row, verifyNotRun(error.message), json);
    }
  }

  /** What the verification said, once it has ended. */
  private hear(row: OutcomeRow, verifyId: string): void {
    const verify = this.context.store.workUnits.get(verifyId);
    if (!verify) this.settle(row, verifyNotRun('its work unit is gone'), null);
    else if (TERMINAL_STATUSES.has(verify.status)) {
      this.settle(row, decideByVerify(verifyEnd(this.context, verify)), null);
    }
  }

  private settle(row: OutcomeRow, settled: Settled, json: string | null): void {
    const { store, writer } = this.context;
    writer.commit((transaction) => {
      if (!store.outcomes.settle(row, settled, json, transaction.at)) return;
      releaseJudged(this.context, row.workUnitId);
      const verifyId = store.outcomes.get(row)?.verifyId ?? null;
      const { attemptId, attemptNumber } = row;
      transaction.append(row.workUnitId, [
        {
          type: 'outcome.settled',
          actor: 'system',
          attemptId,
          data: { ...settled, verifyId, attemptNumber },
        },
      ]);
    });
  }
}

/** What a later try would be told again; the store's own troubles pass. */
function isRefusal(error: unknown): error is OutliveError {
  return error instanceof OutliveError && error.status < 500;
}

/** Of the store, the machine or its threads: it may be over at the next look; a mistake is not. */
function isTrouble(error: unknown): boolean {
  if (error instanceof OutliveError) return error.status >= 500;
  const { code } = Object(error) as { code?: unknown };
  return typeof code === 'string' && (/^E[A-Z0-9]+$/.test(code) || code.startsWith('ERR_WORKER_'));
}

/** Looks under way at once: each has a thread. */
const LOOKS_AT_ONCE = 4;

class Court {
  readonly #context: Context;
  readonly #look: Look;
  readonly #waiting = new Map<string, OutcomeRow>();
  readonly #looking = new Map<string, Promise<void>>();
  #timer: NodeJS.Timeout | null = null;
  readonly #closing = new AbortController();

  constructor(context: Context, submit: Submit) {
    this.#context = context;
    this.#look = new Look(context, submit, this.#closing.signal);
  }

  get closing(): boolean {
    return this.#closing.signal.aborted;
  }

  /** Looks at it, now or when another look is over. */
  judge(row: OutcomeRow): void {
    this.#waiting.set(keyOf(row), row);
    this.#next();
  }

  judgeAll(): void {
    for (const row of this.#context.store.outcomes.pending()) this.judge(row);
  }

  /** Resolves when nothing is being looked at. */
  async rest(): Promise<void> {
    while (this.#looking.size > 0) await Promise.all(this.#looking.values());
  }

  close(): Promise<void> {
    this.#closing.abort();
    this.#waiting.clear();
    if (this.#timer) clearTimeout(this.#timer);
    return this.rest();
  }

  #next(): void {
    for (const [key, row] of this.#waiting) {
      if (this.closing || this.#looking.size >= LOOKS_AT_ONCE) return;
      if (this.#looking.has(key)) continue; // Once that is over: it may know less.
      this.#waiting.delete(key);
      const looking = this.#at(row).then(() => {
        this.#looking.delete(key);
        this.#next();
      });
      this.#looking.set(key, looking);
    }
  }

  /** Never rejects: one that cannot be looked at now must not keep the others. */
  async #at({ workUnitId, attemptNumber }: OutcomeRow): Promise<void> {
    const row = this.#context.store.outcomes.get({ workUnitId, attemptNumber });
    if (row?.state !== 'pending') return;
    try {
      if (!(await this.#look.at(row))) this.#again();
    } catch (error) {
      this.#context.log.error({ err: error, workUnit: workUnitId }, 'an outcome stays pending');
      if (isTrouble(error)) this.#again();
      else this.#look.giveUp(row, error);
    }
  }

  #again(): void {
    if (this.closing) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.judgeAll();
    }, RETRY_MS);
  }
}

const keyOf = ({ workUnitId, attemptNumber }: OutcomeRow): string =>
  `${workUnitId} ${attemptNumber}`;

export function createJudge(context: Context, submit: Submit): Judge {
  const court = new Court(context, submit);
  let unsubscribe: () => void = () => undefined;
  return {
    start: () => {
      court.judgeAll();
      unsubscribe = context.hub.subscribe((events) => {
        for (const { type, workUnitId } of events) {
          if (court.closing || !TERMINAL_EVENT_TYPES.has(type)) continue;
          const { outcomes } = context.store;
          const verified = outcomes.byVerify(workUnitId);
          for (const row of outcomes.pendingOf(workUnitId)) court.judge(row);
          if (verified?.state === 'pending') court.judge(verified);
        }
      });
    },
    rest: () => court.rest(),
    close: () => {
      unsubscribe();
      return court.close();
    },
  };
}
