/** The daemon dies at each named line of src/supervisor/faults.ts. */
import { FAULT_POINTS } from '../../../src/supervisor/faults.ts';
import { ask } from '../clients.ts';
import { oneMoreRecord, type Round, target } from '../round.ts';
import { type Fault, LOST, strike } from './fault.ts';

export const POINT_PREFIX = 'point:';

/** Points of work that a round has no part in, and the test that kills a daemon at each. */
export const ELSEWHERE: Readonly<Record<string, string>> = {
  approval_decided: 'test/systemd/approvals.test.ts',
  gc_marked: 'test/api/maintenance.test.ts',
  gc_moved: 'test/api/maintenance.test.ts',
  gc_events_dropped: 'test/api/maintenance.test.ts',
  gc_finished: 'test/api/maintenance.test.ts',
};

/** Points at which a full run has to kill. */
export const POINTS: readonly string[] = FAULT_POINTS.filter((point) => !(point in ELSEWHERE));

/** A daemon that ends in order and does not let work run on. */
const SUSPENDS = { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '200' } as const;
/** The point may be armed for a later pass than the first. */
const SHUTDOWNS = 3;

/** How a daemon that is armed gets to a point which it does not pass by itself. */
interface Way {
  /** More of the daemon's environment, from its first start on. */
  readonly environment?: Readonly<Record<string, string>>;
  readonly go: (round: Round) => Promise<unknown>;
  /** As what any work may end because of that. */
  readonly allows?: readonly string[];
}

/** A new daemon finds what ended while there was none: so it passes the points of recovery. */
const RECOVERY: Way = {
  go: async (round) => {
    await target(round);
    await round.keeper.down(() => oneMoreRecord(round));
  },
};

/** Points that recovery does not pass either; each says what does. */
const WAYS: Readonly<Record<string, Way>> = {
  cancel_intended: {
    go: async (round) => {
      for (const { key } of round.work) {
        const id = round.ledger.idOf(key);
        if (id !== null && round.keeper.armed !== null) await ask(round, key, id, 'cancel');
      }
    },
  },
  suspended: {
    environment: SUSPENDS,
    allows: [LOST],
    go: async (round) => {
      for (let times = 0; times < SHUTDOWNS && round.keeper.armed !== null; times++) {
        await target(round);
        await round.keeper.ready();
        await round.keeper.end('SIGTERM');
      }
    },
  },
};

const wayTo = (point: string): Way => WAYS[point] ?? RECOVERY;

export const pointEnvironment = (point: string): Readonly<Record<string, string>> =>
  wayTo(point).environment ?? {};

/** The daemon is armed with it from its first start (keeper.ts); here it is led there if need be. */
export const POINT_FAULTS: readonly Fault[] = POINTS.map((point) => ({
  name: `${POINT_PREFIX}${point}`,
  family: 'point',
  inject: async (round) => {
    strike(round, `${POINT_PREFIX}${point}`, 'all', wayTo(point).allows);
    if (round.keeper.armed !== null) await wayTo(point).go(round);
  },
}));
