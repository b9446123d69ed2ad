/**
 * Lets go of units that systemd started after their attempt had ended. Such a start loses
 * the claim and runs nothing, but its dead unit would stay loaded.
 */
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import { isDead } from '../executor/unit-state.ts';
import type { Context } from './context.ts';

/** An attempt that ended without its wrapper's first word: its start may still come. */
function mayComeLate({ store }: Context, unit: string): boolean {
  const attempt = store.attempts.getByUnit(unit);
  return (
    attempt !== null && attempt.opened === null && TERMINAL_ATTEMPT_STATUSES.has(attempt.status)
  );
}

async function releaseDead({ executor, store, log }: Context): Promise<void> {
  // Not by reading the unit: that loads what is not loaded, and says so, which leads here again.
  for (const facts of await executor.list()) {
    if (facts.nonce === null || !isDead(facts) || !store.attempts.hasEnded(facts.nonce)) continue;
    log.info({ unit: facts.unit }, 'a start came too late and ran nothing; its unit is let go');
    await executor.release(facts.unit);
  }
}

/** Begins to listen. @returns how to stop. */
export function releaseLateStarts(
  context: Context,
  isWatched: (unit: string) => boolean,
): () => void {
  let looking = false;
  let again = false;
  const look = async (): Promise<void> => {
    again = true;
    if (looking) return;
    looking = true;
    try {
      while (again) {
        again = false;
        await releaseDead(context);
      }
    } catch (error) {
      context.log.warn({ err: error }, 'late starts cannot be looked for; the next start will');
    } finally {
      looking = false;
    }
  };
  return context.executor.onHint((unit) => {
    if (unit !== null && !isWatched(unit) && mayComeLate(context, unit)) void look();
  });
}
