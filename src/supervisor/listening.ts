/**
 * Listens to a living attempt: its spool, its control socket, its clocks. What it hears
 * goes into the store or to the clocks; it decides nothing.
 */
import type { LiveState } from '../domain/attempt-files.ts';
import type { SilenceCode } from '../domain/clocks.ts';
import { toolAgeMs } from '../domain/clocks.ts';
import { uuidv7 } from '../domain/ids.ts';
import type { UnitFacts } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import { LEASE_TTL_MS } from './admission.ts';
import { AttemptClocks } from './attempt-clocks.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import type { Context } from './context.ts';
import { type ControlLink, openControlLink } from './control-link.ts';
import { commitSoon } from './gather.ts';
import type { Ingest } from './ingest.ts';
import { watchSpool } from './spool-watch.ts';
import type { EventFields } from './writer.ts';

/** What a ping may take of a wrapper that lives. */
const PING_MS = 5_000;

export interface Listening {
  readonly live: LiveState | null;
  /** Tells the wrapper to end its runner; false when it cannot be told right now. */
  tell(reason: 'cancel' | 'interrupt' | 'suspend' | 'fail', graceMs: number): boolean;
  /** Tells the wrapper that a decision lies in its directory. */
  look(): void;
  /** A fresh read of the unit and of the attempt: frozen, waiting for a person. */
  observe(facts: UnitFacts, attempt: AttemptRow): void;
  /** Lines of the spool were committed. */
  spoolGrew(events: readonly EventFields[]): void;
  stop(): void;
}

export interface ListeningOptions {
  readonly context: Context;
  readonly attempt: AttemptRow;
  readonly paths: AttemptPaths;
  readonly ingest: Ingest;
  readonly onSilence: (code: SilenceCode, silentMs: number) => void;
}

/** Gathered: a daemon that takes up two hundred attempts is greeted by all of them at once. */
async function recordHeartbeat(
  context: Context,
  { id, workUnitId }: AttemptRow,
  ts: string,
  live: LiveState,
  isOver: () => boolean,
): Promise<void> {
  const { store, entropy, runtimeInstanceId } = context;
  await commitSoon(context, (transaction) => {
    if (isOver()) return;
    store.attempts.patch(id, { lastHeartbeatAt: ts });
    store.workUnits.touchHeartbeat(workUnitId, ts);
    const detail = JSON.stringify(live);
    const row = { id: uuidv7(entropy), workUnitId, attemptId: id, runtimeInstanceId };
    const expiresAt = new Date(entropy.now() + LEASE_TTL_MS).toISOString();
    store.resources.renewLeases(id, transaction.at, expiresAt);
    store.resources.renewSlots(id, transaction.at);
    store.attempts.heartbeat({ ...row, ts, source: 'wrapper', detail });
  });
}

/** Tool calls that were under way when this daemon took the attempt up. */
function resumeTools(context: Context, attempt: AttemptRow, clocks: AttemptClocks): void {
  const { entropy } = context;
  for (const { toolCallId, ts } of context.store.events.openToolCalls(
    attempt.workUnitId,
    attempt.id,
  )) {
    const ageMs = toolAgeMs({
      wallMs: entropy.now() - Date.parse(ts),
      openedAt: attempt.opened?.uptimeSeconds ?? null,
      uptimeSeconds: entropy.uptimeSeconds(),
    });
    clocks.resumeTool(toolCallId, ageMs);
  }
}

/** Begins to listen. */
export function listen(options: ListeningOptions): Listening {
  const { context, attempt, paths, ingest } = options;
  const { log } = context;
  let stopped = false;
  const catchUp = (): void => {
    ingest.catchUp().catch((error: unknown) => {
      log.error({ err: error, unit: attempt.unit }, 'ingest failed; the spool keeps everything');
    });
  };
  const policy = context.store.workUnits.get(attempt.workUnitId)?.timeoutPolicy;
  const clocks: AttemptClocks | null = policy
    ? new AttemptClocks({
        policy,
        now: () => context.entropy.monotonic(),
        makeSure: async () => {
          await ingest.catchUp();
          if (await link.ping(uuidv7(context.entropy), PING_MS)) {
            clocks?.heard();
            return;
          }
          // Nobody tells of a freeze, and the frozen cannot answer: only a fresh read knows.
          const facts = await context.executor.read(attempt.unit);
          if (facts?.nonce === attempt.nonce) clocks?.setFrozen(facts.frozen);
        },
        ingestCurrent: () => ingest.newer === null,
        reachable: () => link.connected,
        onExpired: options.onSilence,
        onProblem: (error) =>
          log.warn({ err: error, unit: attempt.unit }, 'silence cannot be made sure of'),
      })
    : null;
  const link: ControlLink = openControlLink(paths.controlSocket, attempt.nonce, {
    onHeartbeat: ({ ts, live }) => {
      clocks?.heard();
      // One that fails (a full disk under the store) costs a heartbeat, not the daemon.
      recordHeartbeat(context, attempt, ts, live, () => stopped).catch((error: unknown) => {
        if (!stopped) log.warn({ err: error, unit: attempt.unit }, 'a heartbeat could not be kept');
      });
      catchUp();
    },
    onProblem: (reason) => log.warn({ unit: attempt.unit, reason }, 'control socket'),
  });
  const unwatch = watchSpool(paths.directory, catchUp, (error) =>
    log.warn({ err: error, unit: attempt.unit }, 'cannot watch the spool'),
  );
  if (clocks) resumeTools(context, attempt, clocks);
  clocks?.start();
  catchUp();
  return {
    get live() {
      return link.live;
    },
    tell: (reason, graceMs) => link.abort(reason, graceMs, uuidv7(context.entropy)),
    look: () => link.look(uuidv7(context.entropy)),
    observe: (facts, { status }) => {
      clocks?.setFrozen(facts.frozen);
      clocks?.setWaiting(status === 'waiting_for_approval');
    },
    spoolGrew: (events) => clocks?.spoolGrew(events),
    stop: () => {
      stopped = true;
      clocks?.stop();
      link.close();
      unwatch();
    },
  };
}
