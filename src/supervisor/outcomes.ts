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
import type { Context } from './context.ts';
import { gatherLeft } from './outcome-evidence.ts';
import { verifyEnd, verifyKey, verifyRequest } from './outcome-verify.ts';
import type { Submission, SubmitOptions } from './submit.ts';

/** What is pending for the store's sake is looked at again after this long. */
const RETRY_MS = 5_000;

export interface Judge {
  /** Barrier B: settles what is pending, then what comes. */
  start(): void;
  /** The rest is the next daemon's. */
  close(): void;
}

type Submit = (input: StartWorkUnit, options: SubmitOptions) => Submission;

/** One look at a pending row; may be repeated, and interrupted anywhere. */
class Look {
  private readonly context: Context;
  private readonly submit: Submit;

  constructor(context: Context, submit: Submit) {
    this.context = context;
    this.submit = submit;
  }

  at(row: OutcomeRow): void {
    if (row.verifyId !== null) {
      this.hear(row, row.verifyId);
      return;
    }
    const workUnit = this.context.store.workUnits.get(row.workUnitId);
    const contract = workUnit?.request.outcome;
    if (!workUnit || !contract) return;
    const left = gatherLeft(this.context, row, workUnit, contract);
    const decided = decideByEvidence(left, contract.verify !== undefined);
    if (decided !== 'verify') this.settle(row, decided, left.json);
    else if (contract.verify) this.verify(row, workUnit, contract.verify, left.json);
  }

  /** Submits the verification; the row and it know each other in one commit. */
  private verify(
    row: OutcomeRow,
    workUnit: WorkUnitRow,
    asked: Parameters<typeof verifyRequest>[1],
    json: string | null,
  ): void {
    const request = verifyRequest(workUnit, asked);
    const { outcomes } = this.context.store;
    const options: SubmitOptions = {
      idempotencyKey: verifyKey(row),
      actor: 'system',
      within: (_, { id }) => {
        if (!outcomes.verifiedBy(row, id, json)) throw new Error(`${row.workUnitId} is settled`);
      },
    };
    try {
      // Whoever waits for the tree was woken by the same commit: the tree is taken now if it can be.
      const atOnce = { ...request, queueOnConflict: false };
      const { created } = this.submitFirst(request.exclusive ? atOnce : request, request, options);
      // Another one's, under our key: what it ran is not known to be what was left.
      if (!created) this.settle(row, verifyNotRun('its key was used by other work'), json);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.settle(row, verifyNotRun(error.message), json);
    }
  }

  private submitFirst(
    first: StartWorkUnit,
    second: StartWorkUnit,
    options: SubmitOptions,
  ): Submission {
    try {
      return this.submit(first, options);
    } catch (error) {
      if (!(error instanceof OutliveError) || error.code !== 'resource_busy') throw error;
      return this.submit(second, options);
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

export function createJudge(context: Context, submit: Submit): Judge {
  const look = new Look(context, submit);
  let closing = false;
  let timer: NodeJS.Timeout | null = null;
  let unsubscribe: () => void = () => undefined;

  /** One that cannot be looked at now must not keep the others. */
  const judge = (row: OutcomeRow): void => {
    try {
      look.at(row);
    } catch (error) {
      context.log.error({ err: error, workUnit: row.workUnitId }, 'an outcome stays pending');
      timer ??= setTimeout(() => {
        timer = null;
        judgeAll();
      }, RETRY_MS);
    }
  };
  const judgeAll = (): void => {
    for (const row of context.store.outcomes.pending()) if (!closing) judge(row);
  };

  return {
    start: () => {
      judgeAll();
      unsubscribe = context.hub.subscribe((events) => {
        for (const { type, workUnitId } of events) {
          if (closing || !TERMINAL_EVENT_TYPES.has(type)) continue;
          const { outcomes } = context.store;
          const verified = outcomes.byVerify(workUnitId);
          for (const row of outcomes.pendingOf(workUnitId)) judge(row);
          if (verified?.state === 'pending') judge(verified);
        }
      });
    },
    close: () => {
      closing = true;
      unsubscribe();
      if (timer) clearTimeout(timer);
    },
  };
}
