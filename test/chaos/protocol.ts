/** What the runner outside the host and the round inside it tell each other. */
import type { RoundPlan } from './plan.ts';

export interface RoundRequest {
  readonly plan: RoundPlan;
  readonly workspace: string;
  readonly model: { readonly baseUrl: string; readonly apiKey: string };
}

export interface RoundResult {
  readonly violations: readonly string[];
  /** Names of faults that struck, as often as they did. */
  readonly struck: readonly string[];
  /** Names of faults that found nothing to strike at. */
  readonly missed: readonly string[];
  /** Fault points at which a daemon died. */
  readonly points: readonly string[];
}
