/** What the state of a loaded unit means for its attempt. Pure. */
import type { UnitFacts } from './port.ts';

type Known = Pick<UnitFacts, 'state' | 'jobPending'>;

const isDown = ({ state }: Known): boolean => state === 'inactive' || state === 'failed';

/**
 * It has ended, or never began, and no job is queued that would start it after all. An
 * `inactive` unit with a job is one whose start systemd holds back: it is anything but dead.
 */
export const isDead = (facts: Known): boolean => isDown(facts) && !facts.jobPending;

/** A start job is queued and nothing of it has begun: something it waits for is not there yet. */
export const isHeldBack = (facts: Known): boolean => isDown(facts) && facts.jobPending;

/** Its start is still to come or under way: the main process has not been executed yet. */
export const isPending = (facts: Known): boolean =>
  facts.state === 'activating' || isHeldBack(facts);
