/** What success must leave behind, beyond a process that ended well; and what was found. */
import { z } from 'zod';
import { carriedText } from './text.ts';

const MINUTE = 60_000;
const SCHEMA_MAX = 64 * 1024;

/** True for a relative path that goes up and out of where it begins. */
function leaves(value: string): boolean {
  if (value.startsWith('/')) return false;
  let depth = 0;
  for (const part of value.split('/')) {
    if (part === '..') depth -= 1;
    else if (part !== '' && part !== '.') depth += 1;
    if (depth < 0) return true;
  }
  return false;
}

/** A command that judges what was left behind: status 0 is a yes. */
export const verifySchema = z.strictObject({
  argv: z.array(carriedText(131_072)).min(1).max(4096),
  /** Its own deadline, milliseconds. */
  timeoutMs: z
    .int()
    .min(1_000)
    .max(86_400_000)
    .default(10 * MINUTE),
});

/** The contract; each part that is there has to be kept. */
export const outcomeContractSchema = z
  .strictObject({
    verify: verifySchema.optional(),
    /** Paths or globs below the working directory, or absolute: each has to match something newer than the start. */
    outputs: z
      .array(
        carriedText(4096).refine(
          (value) => !leaves(value),
          'leaves the working directory: give it as an absolute path',
        ),
      )
      .min(1)
      .max(64)
      .optional(),
    /** JSON that the runner has to return; see docs/concepts.md for how. */
    result: z
      .strictObject({
        /** JSON Schema, draft 2020-12. */
        schema: z
          .record(z.string(), z.unknown())
          .refine((value) => JSON.stringify(value).length <= SCHEMA_MAX, 'is larger than 64 KiB'),
      })
      .optional(),
  })
  .refine(
    ({ verify, outputs, result }) => verify ?? outputs ?? result,
    'declares nothing: give verify, outputs or result',
  );
export type OutcomeContract = z.output<typeof outcomeContractSchema>;

export const OUTCOME_STATES = ['pending', 'satisfied', 'blocked', 'refuted', 'skipped'] as const;
export type OutcomeState = (typeof OUTCOME_STATES)[number];

/** `ownerType` of the work unit that verifies; its `ownerId` is the work unit that is judged. */
export const OUTCOME_VERIFY = 'outcome_verify';

/** Why an outcome is not satisfied, each with the sentence a person reads. */
export const OUTCOME_REASONS = {
  delegated_outcome_missing: 'What it had to leave behind is not there',
  verify_failed: 'Its verification says no',
  verify_not_run: 'Its verification could not be run to its end',
  timed_out: 'It ran into a timeout, so nothing was verified',
  was_cancelled: 'It was cancelled, so nothing was verified',
  was_lost: 'It was lost, so nothing was verified',
  never_ran: 'Nothing of it ran, so nothing was verified',
} as const;
export type OutcomeReason = keyof typeof OUTCOME_REASONS;

/** What becomes of processes that are still there when the runner has ended. */
export const LEFTOVER_POLICIES = ['ignore', 'fail'] as const;
export type LeftoverPolicy = (typeof LEFTOVER_POLICIES)[number];
