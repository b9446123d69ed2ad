/**
 * Recovery, the pure part: what to do about everything that is not over and that nobody
 * looks after. A view goes in, ordered actions come out. Used at the start of a daemon
 * and by the census that goes on while it lives; carried out, it leaves nothing to plan.
 */
import { parseUnitName } from '../domain/names.ts';
import type { ListedUnit } from '../executor/port.ts';
import { isDead } from '../executor/unit-state.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

type Work = Pick<WorkUnitRow, 'id' | 'handle' | 'status' | 'activeAttemptId'>;

export interface RecoveryView {
  /** Every attempt whose end is not committed. */
  readonly attempts: readonly AttemptRow[];
  /** Every work unit that is neither queued nor ended. */
  readonly work: readonly Work[];
  /** Attempts whose end is committed and that still hold leases or slots. */
  readonly endedHolders: readonly string[];
  /** Every loaded unit of the workspace. */
  readonly units: readonly ListedUnit[];
  /** Nonces of loaded units whose attempt has ended in the store. */
  readonly endedNonces: ReadonlySet<string>;
  /** Attempts that somebody follows already; empty at the start of a daemon. */
  readonly watched: ReadonlySet<string>;
  /** Work that waits for a person without an attempt: it is where it is to be. */
  readonly suspended: ReadonlySet<string>;
  /** Units that were reported before. */
  readonly reported: ReadonlySet<string>;
}

export type RecoveryAction =
  /** Its unit is loaded under our name and our nonce: follow it on. */
  | { readonly kind: 'reattach'; readonly attempt: AttemptRow }
  /** Its unit is not there: prove that nothing can run, then decide from the evidence. */
  | { readonly kind: 'settle'; readonly attempt: AttemptRow }
  /** Its end is committed, but the daemon died before it let the dead unit go. */
  | { readonly kind: 'release_unit'; readonly unit: string }
  /** What an ended attempt still holds goes back. */
  | { readonly kind: 'release_resources'; readonly attemptId: string }
  /** It claims to be under way and has no attempt that could be: back, failed or over. */
  | { readonly kind: 'settle_work'; readonly work: Work }
  /** A unit of our prefix that no attempt accounts for: told, not touched. */
  | { readonly kind: 'report_foreign'; readonly unit: string; readonly nonce: string | null };

/** One action for every attempt that is not over and not watched. */
function forAttempts({ attempts, units, watched }: RecoveryView): RecoveryAction[] {
  const loaded = new Map(units.map((facts) => [facts.unit, facts]));
  return attempts
    .filter(({ id }) => !watched.has(id))
    .map((attempt) => {
      const ours = loaded.get(attempt.unit)?.nonce === attempt.nonce;
      return { kind: ours ? 'reattach' : 'settle', attempt };
    });
}

/**
 * Work under way whose attempt is over or missing. Stale work is left as it is: it waits
 * for a person, and its code says why.
 */
function forWork({ attempts, work, suspended }: RecoveryView): RecoveryAction[] {
  const live = new Set(attempts.map(({ id }) => id));
  return work
    .filter(({ activeAttemptId }) => activeAttemptId === null || !live.has(activeAttemptId))
    .filter(({ id, status }) => status !== 'stale' && !suspended.has(id))
    .map((row) => ({ kind: 'settle_work', work: row }));
}

/** Units without a row that is under way. */
function forUnits(view: RecoveryView): RecoveryAction[] {
  const owners = new Map(view.attempts.map(({ unit, nonce }) => [unit, nonce]));
  return view.units.flatMap((facts): RecoveryAction[] => {
    const { unit, nonce } = facts;
    if (parseUnitName(unit) === null) return [];
    if (nonce !== null && owners.get(unit) === nonce) return [];
    if (isDead(facts) && nonce !== null && view.endedNonces.has(nonce)) {
      return [{ kind: 'release_unit', unit }];
    }
    return view.reported.has(unit) ? [] : [{ kind: 'report_foreign', unit, nonce }];
  });
}

/** What there is to do: attempts first, since nothing may be released before they are looked at. */
export function planRecovery(view: RecoveryView): readonly RecoveryAction[] {
  return [
    ...forAttempts(view),
    ...forWork(view),
    ...view.endedHolders.map((attemptId) => ({ kind: 'release_resources' as const, attemptId })),
    ...forUnits(view),
  ];
}
