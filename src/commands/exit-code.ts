/** How the outcome of a work unit becomes the exit status of `outlive run`. */
import { EXIT } from '../domain/errors.ts';
import type { OutcomeState } from '../domain/outcome.ts';
import type { WorkUnitStatus } from '../domain/work-unit.ts';

/** Failures that are a clock running out: 124, as coreutils' timeout exits. */
const TIMEOUT_CODES: ReadonlySet<string> = new Set([
  'hard_timeout',
  'idle_timeout',
  'heartbeat_timeout',
  'tool_timeout',
]);

/**
 * Exit status for an ended work unit; one that has not ended did not succeed, and neither did
 * one that declared an outcome (`outcome` is not null) and is not known to have had it.
 */
export function outcomeExitCode(
  status: WorkUnitStatus,
  errorCode: string | null,
  outcome: OutcomeState | null = null,
): number {
  if (status === 'succeeded') {
    return outcome === null || outcome === 'satisfied' ? EXIT.ok : EXIT.failed;
  }
  if (status === 'cancelled') return EXIT.cancelled;
  return errorCode !== null && TIMEOUT_CODES.has(errorCode) ? EXIT.timeout : EXIT.failed;
}
