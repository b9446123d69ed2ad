/** How a run ended, gathered from its events. */
import type { EventView } from '../api/schemas.ts';
import type { EventType } from '../domain/events.ts';
import { OUTCOME_STATES } from '../domain/outcome.ts';
import { type LastWord, lastWordSchema } from '../domain/spool.ts';
import type { WorkUnitStatus } from '../domain/work-unit.ts';
import { stringOf } from './event-data.ts';
import type { ToldOutcome } from './outcome-text.ts';

const ENDS: Partial<Record<EventType, WorkUnitStatus>> = {
  'work_unit.succeeded': 'succeeded',
  'work_unit.failed': 'failed',
  'work_unit.cancelled': 'cancelled',
};

function leftOf(data: EventView['data'], stateName: string, codeName: string): RunOutcome['left'] {
  const state = OUTCOME_STATES.find((known) => known === data[stateName]);
  if (state === undefined) return null;
  return { state, code: stringOf(data, codeName), message: stringOf(data, 'message') };
}

export class RunOutcome {
  /** `running` until a terminal event came; a later retry makes it that again. */
  status: WorkUnitStatus = 'running';
  errorCode: string | null = null;
  errorMessage: string | null = null;
  /** The newest last word of a runner, null while there was none. */
  lastWord: LastWord | null = null;
  /** What it had to leave behind; null while nothing is known, and where nothing was declared. */
  left: (ToldOutcome & { readonly message: string | null }) | null = null;
  /** The number of the attempt whose outcome that is. */
  #outcomeOf: unknown;
  #startedAt: number | null = null;
  #endedAt: number | null = null;

  push({ type, ts, data }: EventView): void {
    if (type === 'work_unit.queued') {
      this.status = 'running';
      this.left = null;
    }
    if (type === 'work_unit.started') this.#startedAt ??= Date.parse(ts);
    if (type === 'runner.finished') this.lastWord = lastWordSchema.safeParse(data).data ?? null;
    const isOfThisEnd = data['attemptNumber'] === this.#outcomeOf;
    if (type === 'outcome.settled' && this.left && isOfThisEnd) {
      this.left = leftOf(data, 'state', 'code');
    }
    const end = ENDS[type];
    if (end === undefined) return;
    this.left = leftOf(data, 'outcome', 'outcomeCode');
    this.#outcomeOf = data['outcomeOf'];
    this.status = end;
    this.#endedAt = Date.parse(ts);
    this.errorCode = stringOf(data, 'errorCode');
    this.errorMessage = stringOf(data, 'errorMessage');
  }

  /** Milliseconds from the first start to the end; null when it never started or has not ended. */
  get tookMs(): number | null {
    if (this.#startedAt === null || this.#endedAt === null) return null;
    return this.#endedAt - this.#startedAt;
  }
}
