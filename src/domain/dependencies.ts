/** When work may start that waits for other work: states of what it waits for, and how many it needs. */
import { z } from 'zod';
import type { OutcomeState } from './outcome.ts';
import { carriedText } from './text.ts';
import type { WorkUnitStatus } from './work-unit.ts';

/** Most work units that one may wait for. */
export const AFTER_MAX = 64;

const named = carriedText(256);

/** What a request waits for. */
export const afterSchema = z
  .strictObject({
    /** Ids, or handles: the live work unit of that handle, else the newest. */
    workUnits: z.array(named).min(1).max(AFTER_MAX),
    /** How many of them have to be satisfied. */
    needed: z.union([z.enum(['all', 'any']), z.int().min(1).max(AFTER_MAX)]).default('all'),
  })
  .refine(({ workUnits, needed }) => typeof needed === 'string' || needed <= workUnits.length, {
    path: ['needed'],
    message: 'is more than the work units that are named',
  });
export type After = z.output<typeof afterSchema>;

/** `needed` as a number. */
export function neededOf({ workUnits, needed }: After): number {
  if (needed === 'all') return workUnits.length;
  return needed === 'any' ? 1 : needed;
}

export const DEPENDENCY_STATES = ['pending', 'satisfied', 'failed'] as const;
/** `failed`: it ended otherwise; only another attempt of it can still satisfy. */
export type DependencyState = (typeof DEPENDENCY_STATES)[number];

export interface DependencyFacts {
  /** Null when there is no such work unit any more. */
  readonly status: WorkUnitStatus | null;
  /** Whether its request declares an outcome. */
  readonly declared: boolean;
  /** Of its latest end; null where there is none. */
  readonly outcome: OutcomeState | null;
}

/** A success counts at once where no outcome was declared, else when the outcome is there. */
export function dependencyState({ status, declared, outcome }: DependencyFacts): DependencyState {
  if (status === null || status === 'failed' || status === 'cancelled') return 'failed';
  if (status !== 'succeeded') return 'pending';
  if (outcome === null) return declared ? 'pending' : 'satisfied';
  if (outcome === 'satisfied' || outcome === 'pending') return outcome;
  return 'failed';
}

export interface Dependency {
  readonly state: DependencyState;
}

/**
 * `stuck`: it cannot open any more unless something of `failed` is tried again. `missing` is how
 * many of those that are listed have to be satisfied yet.
 */
export type DependencyGate<One extends Dependency> =
  | { readonly kind: 'open' }
  | { readonly kind: 'waits'; readonly pending: readonly One[]; readonly missing: number }
  | { readonly kind: 'stuck'; readonly failed: readonly One[]; readonly missing: number };

/** Whether enough of `all` is satisfied, may still be, or cannot be as it stands. */
export function dependencyGate<One extends Dependency>(
  all: readonly One[],
  needed: number,
): DependencyGate<One> {
  const inState = (wanted: DependencyState) => all.filter(({ state }) => state === wanted);
  const [pending, satisfied, failed] = DEPENDENCY_STATES.map(inState) as [One[], One[], One[]];
  const missing = needed - satisfied.length;
  if (missing <= 0) return { kind: 'open' };
  return missing <= pending.length
    ? { kind: 'waits', pending, missing }
    : { kind: 'stuck', failed, missing: missing - pending.length };
}

/**
 * Events of a work unit after which those that wait for it are looked at again. `outcome.settled`
 * tells of an outcome that is not pending any more.
 */
const DEPENDENCY_EVENTS: ReadonlySet<string> = new Set([
  'work_unit.queued',
  'work_unit.succeeded',
  'work_unit.failed',
  'work_unit.cancelled',
  'outcome.settled',
]);

/** True for an event that may open or close the gate of work that waits. */
export const movesDependents = (type: string): boolean => DEPENDENCY_EVENTS.has(type);
