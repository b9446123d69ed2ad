/** The proof that nothing of an attempt runs, and that nothing of it can start late. */
import type { UnitFacts } from '../executor/port.ts';
import { isDead } from '../executor/unit-state.ts';
import type { AttemptRow } from '../store/attempts.ts';
import { attemptPaths, revokeClaim } from './attempt-directory.ts';
import type { Context } from './context.ts';

export type Proof =
  | { readonly dead: true; readonly facts: UnitFacts | null }
  | { readonly dead: false; readonly why: 'alive' | 'group_not_empty' };

const ALIVE: Proof = { dead: false, why: 'alive' };

/** Our unit of that name; null when nothing is loaded or what is loaded is not ours. */
export async function readOwn(
  { executor }: Context,
  { unit, nonce }: Pick<AttemptRow, 'unit' | 'nonce'>,
): Promise<UnitFacts | null> {
  const facts = await executor.read(unit);
  return facts?.nonce === nonce ? facts : null;
}

/**
 * Reads the unit afresh; an attempt whose wrapper has not been heard of loses its claim
 * first, so that a start which is still on its way runs nothing. A wrapper that was faster
 * runs, or has run: then the unit is looked at once more.
 * @throws OutliveError `bus_unavailable`: a manager that cannot be asked proves nothing.
 */
export async function proveDead(
  context: Context,
  attempt: AttemptRow,
  emptyWaitMs: number,
): Promise<Proof> {
  let facts = await readOwn(context, attempt);
  if (facts && !isDead(facts)) return ALIVE;
  if (!facts || !attempt.opened) {
    const paths = attemptPaths(context.settings, attempt);
    const holder = await revokeClaim(paths, attempt, context.runtimeInstanceId);
    context.fault('claim_decided');
    if (holder === 'wrapper') facts = await readOwn(context, attempt);
    if (facts && !isDead(facts)) return ALIVE;
  }
  const group = attempt.controlGroup;
  const empty = group === null || (await context.executor.waitEmpty(group, emptyWaitMs));
  return empty ? { dead: true, facts } : { dead: false, why: 'group_not_empty' };
}
