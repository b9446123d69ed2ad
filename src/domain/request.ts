/** The request that makes a work unit, after validation and defaults. */
import { z } from 'zod';
import { afterSchema } from './dependencies.ts';
import { environmentFilesSchema, environmentSchema } from './environment.ts';
import { handleSchema } from './names.ts';
import { LEFTOVER_POLICIES, outcomeContractSchema } from './outcome.ts';
import { providerRetrySchema } from './provider-retry.ts';
import { leaseRequestSchema, SUBJECT_POLICIES } from './resources.ts';
import { LOST_POLICIES } from './resume.ts';
import { SANDBOX_MODES } from './sandbox.ts';
import { spendCeilingSchema } from './spend.ts';
import { carried, carriedText } from './text.ts';
import { toolPolicySchema } from './tool-policy-schema.ts';
import { timeoutPolicySchema, WORK_UNIT_KINDS } from './work-unit.ts';

/** A name or an id that somebody else gave. */
export const shortText = carriedText(256);

/** Largest prompt, in UTF-16 code units. */
export const PROMPT_MAX = 4 * 1024 * 1024;

const startFields = {
  kind: z.enum(WORK_UNIT_KINDS).default('task_run'),
  ownerType: shortText.default('user'),
  ownerId: shortText,
  handle: handleSchema.optional(),
  /** Absolute path of the work tree; the daemon's home directory when absent. */
  cwd: carried(z.string().startsWith('/', 'must be an absolute path').max(4096)).optional(),
  /** Paths besides the work tree, and whatever else must be held alone while it runs. */
  leases: z.array(leaseRequestSchema).max(64).default([]),
  /**
   * The work tree that nobody else may work in meanwhile: true for the working directory
   * (the default of Pi runs), false for none (the default of commands).
   */
  exclusive: z.boolean().optional(),
  channelId: shortText.optional(),
  taskId: shortText.optional(),
  teammateId: shortText.optional(),
  /** Whose slots it takes; the provider in `model` when absent. */
  providerPresetId: shortText.optional(),
  /** What outside it is about, `github:acme/app#42`: one work unit at a time works on it. */
  externalSubject: shortText.optional(),
  /** What becomes of older live work on the same subject; the channel's policy when absent. */
  onNewerSubject: z.enum(SUBJECT_POLICIES).optional(),
  priority: z.int().min(-1000).max(1000).default(0),
  timeoutPolicy: timeoutPolicySchema.partial().optional(),
  /** What becomes of it when its machine or user manager goes away; Pi resumes, a command fails. */
  onLost: z.enum(LOST_POLICIES).optional(),
  /** How often and how long it is tried again when its provider fails; config.json when absent. */
  providerRetry: providerRetrySchema.partial().optional(),
  /** What all its attempts together may cost; the kind's ceiling in config.json when absent. */
  spendCeiling: spendCeilingSchema.optional(),
  /** How far what it runs is kept from everything else; OUTLIVE_SANDBOX when absent. */
  sandbox: z.enum(SANDBOX_MODES).optional(),
  /** Work that must have had its outcome before this begins; it is queued meanwhile. */
  after: afterSchema.optional(),
  /** What it must leave behind to count as done, whatever its process says of itself. */
  outcome: outcomeContractSchema.optional(),
  /** Whether processes that a run leaves behind, which are swept either way, fail it; `ignore` when absent. */
  leftovers: z.enum(LEFTOVER_POLICIES).optional(),
  /** Variables of what it runs, over those that all runs have; no answer and no event shows a value. */
  environment: environmentSchema.optional(),
  /** Files of more variables, read each time an attempt is prepared; `environment` wins over them. */
  environmentFiles: environmentFilesSchema.optional(),
  queueOnConflict: z.boolean().default(true),
  idempotencyKey: shortText.optional(),
  createdByClientId: shortText.optional(),
};

/** Body of POST /work-units. */
export const startWorkUnitSchema = z.discriminatedUnion('runnerId', [
  z.strictObject({
    ...startFields,
    runnerId: z.literal('pi'),
    prompt: z
      .string()
      .max(PROMPT_MAX)
      .refine((text) => text.trim() !== '', 'the prompt is empty'),
    /** Goes on with this conversation of earlier work, one at a time; a conversation of its own when absent. */
    conversation: z
      .string()
      .regex(/^[a-z0-9][a-z0-9._-]{0,127}$/, 'is not a name of small letters, digits and . _ -')
      .optional(),
    /** What is asked before a tool acts; the channel's, kind's or workspace's when absent. */
    toolPolicy: toolPolicySchema.optional(),
    /** `provider/model`; the person's default when absent. */
    model: shortText.optional(),
  }),
  z.strictObject({
    ...startFields,
    runnerId: z.literal('command'),
    argv: z
      .array(carried(z.string().max(131_072)))
      .min(1)
      .max(4096)
      .refine(([program]) => program !== '', { path: [0], message: 'names no program' }),
  }),
]);
export type StartWorkUnit = z.output<typeof startWorkUnitSchema>;
export type StartWorkUnitInput = z.input<typeof startWorkUnitSchema>;
