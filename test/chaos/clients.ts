/** What a client of the daemon does: submits until it is answered, follows to the end. */
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { StartWorkUnitInput } from '../../src/api/schemas.ts';
import { ERRORS, EXIT, OutliveError } from '../../src/domain/errors.ts';
import { TERMINAL_STATUSES, type WorkUnitStatus } from '../../src/domain/work-unit.ts';
import { script } from '../support/rig.ts';
import type { Act, Ledger } from './ledger.ts';
import type { Work } from './plan.ts';
import type { Workshop } from './workshop.ts';

const WORK = fileURLToPath(new URL('work.sh', import.meta.url));
/** A client tries again for so long; then the settling does (settle.ts). */
const CLIENT_PATIENCE_MS = 15_000;
const CLIENT_RETRY_MS = 60;
/** Far above what the work of a round takes, also where starts are put off for 1, 4, 16 and 60 s. */
export const QUIET_MS = 110_000;

/** Exit status of work that is meant to fail. */
const FAILS_WITH = 3;

/**
 * Answers after which the same may be asked again, and must have its effect once: what the table of
 * errors counts as unreachable (a daemon that starts, shuts down, or has no store), and what a full
 * disk or a fault in the middle of a request gives.
 */
const PASSING: ReadonlySet<string> = new Set([
  ...Object.entries(ERRORS).flatMap(([code, { exit }]) =>
    exit === EXIT.unreachable ? [code] : [],
  ),
  'disk_full',
  'internal',
]);

const isPassing = (error: unknown): boolean =>
  error instanceof OutliveError && PASSING.has(error.code);

/** The request of a piece of work: the same each time it is sent. */
export function requestOf({ base, tree }: Workshop, work: Work): StartWorkUnitInput {
  const { key, manner, lease, priority, cancelGraceMs } = work;
  const tenths = String(Math.round(work.bodyMs / 100));
  const status = manner === 'failing' ? String(FAILS_WITH) : '0';
  const body = ['sh', WORK, base, key, lease ?? '-', tenths, status, manner];
  const common = {
    ownerId: 'chaos',
    cwd: tree,
    handle: key,
    idempotencyKey: key,
    priority,
    exclusive: false,
    leases: lease === null ? [] : [{ type: 'task' as const, key: lease }],
    timeoutPolicy: { cancelGraceMs, heartbeatIntervalMs: 500 },
  };
  if (manner === 'pi') {
    const prompt = script(`bash ${body.join(' ')}`, 'say over');
    return { ...common, runnerId: 'pi', model: 'lab/scripted', prompt };
  }
  const argv = manner === 'unspawnable' ? [path.join(base, 'no-such-program')] : body;
  return { ...common, runnerId: 'command', argv };
}

/** Sends until it is answered; a daemon may be down. @returns null when patience ran out. */
async function persist<T>(send: () => Promise<T>): Promise<T | null> {
  const end = Date.now() + CLIENT_PATIENCE_MS;
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!isPassing(error)) throw error;
      if (Date.now() > end) return null;
      await pause(CLIENT_RETRY_MS);
    }
  }
}

/** Submits one piece of work; sent again with the same key, it is one work unit. */
export async function submit(
  workshop: Workshop,
  ledger: Ledger,
  work: Work,
): Promise<string | null> {
  ledger.write({ what: 'submit', key: work.key });
  try {
    const started = await persist(() => workshop.client.startWorkUnit(requestOf(workshop, work)));
    if (started === null) return null;
    ledger.write({ what: 'accepted', key: work.key, id: started.workUnit.id });
    return started.workUnit.id;
  } catch (error) {
    ledger.write({ what: 'refused', key: work.key, code: (error as OutliveError).code });
    return null;
  }
}

/** Asks for a cancellation or a retry until it is answered, with one key. */
export async function ask(
  { workshop, ledger }: { workshop: Workshop; ledger: Ledger },
  key: string,
  id: string,
  what: Act,
): Promise<void> {
  const { client } = workshop;
  const idempotencyKey = `${what}-${key}`;
  ledger.write({ what: 'asked', key, act: what });
  const answered = (status: string | null, code: string | null): void =>
    ledger.write({ what: 'answered', key, act: what, status, code });
  try {
    const workUnit = await persist(() =>
      what === 'cancel'
        ? client.cancelWorkUnit(id, {}, idempotencyKey)
        : client.retryWorkUnit(id, idempotencyKey),
    );
    answered(workUnit?.status ?? null, workUnit === null ? 'no_answer' : null);
  } catch (error) {
    answered(null, (error as OutliveError).code);
  }
}

/** Lost work that waits for a person comes to no other end. */
const isBlocked = ({ type, data }: { type: string; data: unknown }): boolean =>
  type === 'work_unit.progress' && (data as { kind?: unknown }).kind === 'resume_blocked';

/** Follows a work unit until it is over or blocked, over restarts of the daemon; its status then. */
export async function followToEnd(
  { client }: Workshop,
  id: string,
  signal: AbortSignal = AbortSignal.timeout(QUIET_MS),
): Promise<WorkUnitStatus | 'unknown' | null> {
  let afterSeq = 0;
  while (!signal.aborted) {
    try {
      const { status, errorCode } = await client.getWorkUnit(id);
      if (TERMINAL_STATUSES.has(status)) return status;
      if (status === 'stale' && errorCode !== null) return status;
      for await (const event of client.followEvents(id, { afterSeq, signal })) {
        afterSeq = event.seq;
        if (isBlocked(event)) break;
      }
    } catch (error) {
      const code = error instanceof OutliveError ? error.code : String(error);
      if (code === 'not_found') return 'unknown';
      // A daemon that starts, a store that was replaced: the stream is asked for anew.
      if (code === 'control_plane_snapshot_required') afterSeq = 0;
      await pause(CLIENT_RETRY_MS);
    }
  }
  return null;
}
