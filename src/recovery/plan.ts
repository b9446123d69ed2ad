/**
 * Recovery, the pure part: what to do about each attempt that was under way when the
 * daemon before us ended. A view goes in, ordered actions come out.
 */
import { parseUnitName } from '../domain/names.ts';
import type { UnitFacts } from '../executor/port.ts';
import { isDead } from '../executor/unit-state.ts';
import type { AttemptRow } from '../store/attempts.ts';

export interface RecoveryView {
  /** Every attempt whose end is not committed. */
  readonly attempts: readonly AttemptRow[];
  /** Every loaded unit of the workspace. */
  readonly units: readonly UnitFacts[];
  /** Nonces of loaded units whose attempt has ended in the store. */
  readonly endedNonces: ReadonlySet<string>;
}

export type RecoveryAction =
  /** Its unit is loaded under our name and our nonce: follow it on. */
  | { readonly kind: 'reattach'; readonly attempt: AttemptRow }
  /** Its unit is not there: prove that nothing can run, then decide from the evidence. */
  | { readonly kind: 'settle'; readonly attempt: AttemptRow }
  /** Its end is committed, but the daemon died before it let the dead unit go. */
  | { readonly kind: 'release'; readonly unit: string }
  /** A unit of our prefix that no attempt accounts for: told, not touched. */
  | { readonly kind: 'report_foreign'; readonly unit: string; readonly nonce: string | null };

/** One action for every attempt and for every unit nobody owns. */
export function planRecovery({
  attempts,
  units,
  endedNonces,
}: RecoveryView): readonly RecoveryAction[] {
  const loaded = new Map(units.map((facts) => [facts.unit, facts]));
  const owned = new Set<string>();
  const actions: RecoveryAction[] = attempts.map((attempt) => {
    const facts = loaded.get(attempt.unit);
    if (facts?.nonce !== attempt.nonce) return { kind: 'settle', attempt };
    owned.add(attempt.unit);
    return { kind: 'reattach', attempt };
  });
  for (const facts of units) {
    const { unit, nonce } = facts;
    if (owned.has(unit) || parseUnitName(unit) === null) continue;
    if (isDead(facts) && nonce !== null && endedNonces.has(nonce))
      actions.push({ kind: 'release', unit });
    else actions.push({ kind: 'report_foreign', unit, nonce });
  }
  return actions;
}
