/** What goes wrong at Linear's side while people work. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../../chaos/random.ts';
import type { Fault } from '../../support/linear-double/faults.ts';
import type { LinearDouble } from '../../support/linear-double/server.ts';

const CALLS = [
  ...['agentActivityCreate', 'agentActivityCreate', 'agentActivityCreate'],
  ...['agentSessions', 'issue', 'issueUpdate', 'team', 'token', '*'],
];

const FAULTS: readonly ((random: Random) => Fault)[] = [
  () => ({ kind: 'lost' }),
  () => ({ kind: 'lost' }),
  () => ({ kind: 'cut' }),
  (random) => ({ kind: 'status', status: random.pick([500, 502, 503, 504]) }),
  (random) => ({ kind: 'late', ms: random.whole(50, 2_000) }),
  () => ({ kind: 'unsuccessful' }),
  (random) => ({ kind: 'rate_limited', status: random.pick([400, 429]), retryAfter: 1 }),
  () => ({ kind: 'unauthorized' }),
];

/** What one bad moment does. */
type Moment = (linear: LinearDouble, random: Random) => Promise<void> | void;

const fault: Moment = ({ faults }, random) =>
  faults.next(random.pick(CALLS), random.pick(FAULTS)(random), random.pick([1, 1, 1, 2]));

const MOMENTS: readonly Moment[] = [
  ...Array.from({ length: 12 }, () => fault),
  ({ oauth }) => oauth.expireAccess(),
  ({ oauth }) => oauth.revokeAll(),
  ({ limits }, random) => limits.leave(random.pick([0, 3, 100])),
  ({ limits }) => limits.leaveComplexity(50),
  ({ faults }) => faults.next('agentActivityCreate', { kind: 'hang' }),
  async ({ oauth }, random) => {
    oauth.allowsClientCredentials = false;
    oauth.expireAccess();
    await pause(random.whole(300, 2_000));
    oauth.allowsClientCredentials = true;
  },
];

/** A budget that is used up is there again soon. */
export const WINDOW_MS = 4_000;

/** One bad moment after the other until `signal` says so; then all is well. */
export async function badWeather(
  linear: LinearDouble,
  random: Random,
  signal: AbortSignal,
): Promise<void> {
  linear.limits.windowMs = WINDOW_MS;
  while (!signal.aborted) {
    await pause(random.whole(100, 900));
    // What met no call is over: else faults would gather for whoever calls next.
    linear.faults.clear();
    await random.pick(MOMENTS)(linear, random);
  }
  linear.faults.clear();
  linear.limits.leave(linear.limits.requests);
  linear.limits.leaveComplexity(linear.limits.complexity);
}
