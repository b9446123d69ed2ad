/**
 * A graph of steps that wait for each other, on a real store, driven by hand; beside it a model
 * that knows nothing of the store, told what was done and asked what must be.
 */
import { conclude } from '../../src/supervisor/conclude.ts';
import { awaitedBy } from '../../src/supervisor/dependencies.ts';
import { retry } from '../../src/supervisor/retry.ts';
import { gathered } from '../store/approval-rig.ts';
import { open, raw } from '../store/rig.ts';
import { fakeEntropy, QueueRig, STARVING_MS } from '../support/core-queue.ts';
import { end, evidence, lastWord } from './evidence.ts';

/** How one attempt of a step ends: `lost` with its machine, `refuted` after a success of its process. */
export type End = 'ok' | 'failed' | 'lost' | 'refuted';

export interface Step {
  /** Indexes of earlier steps. */
  readonly after: readonly number[];
  readonly needed: 'all' | 'any' | number;
  /** One for each attempt; it is retried while there is another. */
  readonly ends: readonly End[];
  /** Its success counts only once its outcome is there. */
  readonly declares: boolean;
  /** Somebody cancels it before it ends by itself. */
  readonly cancelled: boolean;
}

export type Final = 'satisfied' | 'refuted' | 'failed' | 'cancelled' | 'queued';

const neededOf = ({ after, needed }: Step): number =>
  needed === 'all' ? after.length : needed === 'any' ? 1 : needed;

/** The one right end of each step: it follows from the graph alone, whatever happens on the way. */
export function rightEnds(steps: readonly Step[]): { state: Final; attempts: number | null }[] {
  const ends: { state: Final; attempts: number | null }[] = [];
  for (const step of steps) {
    const there = step.after.filter((index) => ends[index]?.state === 'satisfied').length;
    const opens = step.after.length === 0 || there >= neededOf(step);
    if (step.cancelled) ends.push({ state: 'cancelled', attempts: null });
    else if (!opens) ends.push({ state: 'queued', attempts: 0 });
    else {
      const last = step.ends.findIndex((one) => one === 'ok' || one === 'refuted');
      const how = step.ends[last];
      if (how === undefined) ends.push({ state: 'failed', attempts: step.ends.length });
      else ends.push({ state: how === 'ok' ? 'satisfied' : 'refuted', attempts: last + 1 });
    }
  }
  return ends;
}

interface Known {
  readonly id: string;
  state: Final | 'running' | 'pending';
  /** Attempts that ended by themselves. */
  attempts: number;
  /** Whether one start of it ran nothing already. */
  slipped: boolean;
  stuck: boolean;
  alarms: number;
}

export const ACTS = [
  'submit',
  'claim',
  'end',
  'slip',
  'settle',
  'retry',
  'cancel',
  'wait',
] as const;
export type Act = (typeof ACTS)[number];

/** Ends a transaction as a SIGKILL does: nothing of it is there. */
class Killed extends Error {}

export class Graph {
  rig: QueueRig;
  readonly known: Known[] = [];
  readonly #steps: readonly Step[];
  readonly #directory: string;
  readonly #entropy = fakeEntropy();
  readonly #wrong: string[] = [];
  /** What is done now will not be committed. */
  #doomed = false;

  constructor(steps: readonly Step[], directory: string) {
    this.#steps = steps;
    this.#directory = directory;
    this.rig = this.#begin();
  }

  #begin(): QueueRig {
    const limits = { runner: { command: 6 } };
    const rig = new QueueRig(open(this.#directory), limits, {}, {}, this.#entropy);
    rig.store.write(() => rig.store.queue.wakeAll()); // As the scheduler does at its start.
    return rig;
  }

  /** Another daemon on the same store; attempts under way go on. */
  restart(): void {
    this.rig.store.close();
    this.rig = this.#begin();
  }

  /** Does it in a transaction that is never committed, and goes on as the next daemon. */
  async killedDuring(act: Act, pick: number): Promise<void> {
    const before = this.known.map((one) => ({ ...one }));
    const done: Promise<void>[] = [];
    try {
      this.rig.context.writer.commit(() => {
        this.#doomed = true;
        done.push(this.act(act, pick));
        throw new Killed();
      });
    } catch (error) {
      if (!(error instanceof Killed)) throw error;
    }
    this.#doomed = false;
    await Promise.all(done);
    this.known.splice(0, this.known.length, ...before);
    this.restart();
  }

  /** Does what it says where there is something to do it to. */
  async act(act: Act, pick: number): Promise<void> {
    this.rig.entropy.advance(100);
    if (act === 'submit') this.#submit();
    else if (act === 'claim') this.#claim();
    else if (act === 'wait') this.rig.entropy.advance(STARVING_MS + 1);
    else {
      const candidates = this.known.flatMap((_, index) => (this.#can(act, index) ? [index] : []));
      const index = candidates[pick % Math.max(1, candidates.length)];
      if (index !== undefined) await this.#to(act, index);
    }
    this.#countAlarms();
  }

  /** All that is left to do, until there is nothing. */
  async finish(): Promise<void> {
    for (let before = ''; before !== JSON.stringify(this.known); ) {
      before = JSON.stringify(this.known);
      for (const act of ACTS) {
        for (let times = 0; times < this.#steps.length; times++) await this.act(act, 0);
      }
    }
  }

  #can(act: Act, index: number): boolean {
    const [step, known] = [this.#step(index), this.#known(index)];
    if (act === 'end') return known.state === 'running' && !step.cancelled;
    if (act === 'slip') return known.state === 'running' && !known.slipped;
    if (act === 'settle') return known.state === 'pending';
    if (act === 'retry') return known.state === 'failed' && known.attempts < step.ends.length;
    return step.cancelled && (known.state === 'queued' || known.state === 'running');
  }

  async #to(act: Act, index: number): Promise<void> {
    const known = this.#known(index);
    if (act === 'end') this.#end(index);
    else if (act === 'slip') {
      this.#conclude(known.id, evidence({ claim: 'revoked', opened: null }));
      Object.assign(known, { state: 'queued', slipped: true });
    } else if (act === 'settle') this.#settle(index);
    else if (act === 'cancel') {
      this.rig.cancel(known.id);
      if (known.state === 'running')
        this.#conclude(known.id, evidence({ end: end('signal killed TERM') }));
      known.state = 'cancelled';
    } else {
      const done = retry(this.rig.context, known.id, 'user'); // Committed when this returns.
      Object.assign(known, { state: 'queued', stuck: false });
      await done;
    }
  }

  #submit(): void {
    const index = this.known.length;
    const step = this.#steps[index];
    if (!step) return;
    const after = { workUnits: step.after.map((one) => `step${one}`), needed: step.needed };
    const id = this.rig.submit({
      handle: `step${index}`,
      ...(step.after.length > 0 ? { after } : {}),
    });
    this.known.push({ id, state: 'queued', attempts: 0, slipped: false, stuck: false, alarms: 0 });
  }

  #claim(): void {
    const { claim } = this.rig.claimOnce();
    if (!claim) return;
    const index = this.known.findIndex(({ id }) => id === claim.workUnit.id);
    const known = this.#known(index);
    if (known.state !== 'queued') this.#wrong.push(`step ${index} was run while ${known.state}`);
    const gate = this.gate(index);
    if (gate !== 'open') this.#wrong.push(`step ${index} was run while its gate was: ${gate}`);
    known.state = 'running';
    if (index % 2 === 0) this.rig.run(known.id); // The others end before they were seen to run.
  }

  #end(index: number): void {
    const [step, known] = [this.#step(index), this.#known(index)];
    const how = step.ends[known.attempts] ?? 'ok';
    if (how === 'lost') this.#conclude(known.id, evidence({ hostChanged: true }));
    else if (how === 'failed') {
      const said = lastWord({ verdict: 'error', code: 'agent_error' });
      this.#conclude(known.id, evidence({ end: end('exit-code exited 1'), lastWord: said }));
    } else {
      if (declares(step)) this.#declare(known.id);
      this.#conclude(known.id, evidence({ end: end('success exited 0'), lastWord: lastWord() }));
    }
    known.attempts += 1;
    if (how === 'lost' || how === 'failed') known.state = 'failed';
    else known.state = declares(step) ? 'pending' : 'satisfied';
  }

  #conclude(id: string, known: ReturnType<typeof evidence>): void {
    const attempt = this.rig.active(id);
    const { intent } = attempt;
    conclude(this.rig.context, attempt.id, gathered({ ...known, intent }));
  }

  /** As a request that declares an outcome. */
  #declare(id: string): void {
    this.#behind(
      `UPDATE work_units SET request_json = json_set(request_json, '$.outcome', json('{"outputs":["x"]}'))
      WHERE id = @id AND @state IS NOT NULL`,
      id,
      '',
    );
  }

  #settle(index: number): void {
    const [step, known] = [this.#step(index), this.#known(index)];
    const refuted = step.ends[known.attempts - 1] === 'refuted';
    this.#behind(
      `INSERT INTO outcomes (work_unit_id, attempt_number, state, created_at)
       SELECT id, attempt_count, @state, updated_at FROM work_units WHERE id = @id
       ON CONFLICT DO UPDATE SET state = excluded.state`,
      known.id,
      refuted ? 'refuted' : 'satisfied',
    );
    this.rig.context.writer.commit((transaction) =>
      transaction.append(known.id, [{ type: 'outcome.settled', actor: 'system' }]),
    );
    known.state = refuted ? 'refuted' : 'satisfied';
  }

  /** What the store has no statement for here. */
  #behind(sql: string, id: string, state: string): void {
    if (this.#doomed) return; // The store is locked, and nothing of it would stay.
    const db = raw(this.#directory);
    db.prepare(sql).run({ id, state });
    db.close();
  }

  #step(index: number): Step {
    const step = this.#steps[index];
    if (!step) throw new Error(`there is no step ${index}`);
    return step;
  }

  #known(index: number): Known {
    const known = this.known[index];
    if (!known) throw new Error(`step ${index} was not submitted`);
    return known;
  }

  /** Of the model. */
  gate(index: number): 'open' | 'waits' | 'stuck' {
    const step = this.#step(index);
    const states = step.after.map((one) => this.known[one]?.state);
    const satisfied = states.filter((state) => state === 'satisfied').length;
    const lost = ['refuted', 'failed', 'cancelled'];
    const possible = states.filter((state) => state !== undefined && !lost.includes(state)).length;
    if (step.after.length === 0 || satisfied >= neededOf(step)) return 'open';
    return possible >= neededOf(step) ? 'waits' : 'stuck';
  }

  #countAlarms(): void {
    for (const [index, known] of this.known.entries()) {
      const stuck = known.state === 'queued' && this.gate(index) === 'stuck';
      if (stuck && !known.stuck) known.alarms += 1;
      known.stuck = stuck;
    }
  }

  /** How often each was told to be stuck. */
  #alarms(): ReadonlyMap<string, number> {
    const db = raw(this.#directory);
    const rows = db
      .prepare<[], { id: string; count: number }>(
        `SELECT work_unit_id AS id, count(*) AS count FROM runtime_events
         WHERE type = 'diagnostic.dependency_failed' GROUP BY work_unit_id`,
      )
      .all();
    db.close();
    return new Map(rows.map(({ id, count }) => [id, count]));
  }

  /** What was done that must not be, and what differs from the model now. */
  violations(): string[] {
    const told = this.#alarms();
    return [...this.#wrong, ...this.known.flatMap((_, index) => this.#differences(index, told))];
  }

  #differences(index: number, told: ReadonlyMap<string, number>): string[] {
    const { id, state, alarms } = this.#known(index);
    const { status } = this.rig.store.workUnits.get(id) ?? {};
    const reason = awaitedBy(this.rig.store, id)?.reason ?? '';
    const gate = state === 'queued' ? this.gate(index) : null;
    const rules: Readonly<Record<string, boolean>> = {
      [`is ${status}`]: status === (STATUS[state] ?? status),
      [`was told ${told.get(id) ?? 0} times to be stuck, not ${alarms}`]:
        alarms === (told.get(id) ?? 0),
      [`says "${reason}"`]: gate === null || (reason === '') === (gate === 'open'),
      [`says whether it is stuck in "${reason}"`]:
        gate === null || reason.endsWith('cancel this one') === (gate === 'stuck'),
    };
    return Object.entries(rules).flatMap(([what, holds]) =>
      holds ? [] : [`step ${index}, ${state}, gate ${gate}: ${what}`],
    );
  }
}

/** A success that is refuted later was declared. */
const declares = ({ declares, ends }: Step): boolean => declares || ends.includes('refuted');

/** Running work may be claimed still. */
const STATUS: Partial<Record<Known['state'], string>> = {
  queued: 'queued',
  pending: 'succeeded',
  satisfied: 'succeeded',
  refuted: 'succeeded',
  failed: 'failed',
  cancelled: 'cancelled',
};
