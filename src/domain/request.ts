/** The request that makes a work unit, after validation and defaults. */
import { z } from 'zod';
import { handleSchema } from './names.ts';
import { timeoutPolicySchema, WORK_UNIT_KINDS } from './work-unit.ts';

const shortText = z.string().min(1).max(256);

/** Largest prompt, in UTF-16 code units. */
export const PROMPT_MAX = 8 * 1024 * 1024;

const startFields = {
  kind: z.enum(WORK_UNIT_KINDS).default('task_run'),
  ownerType: shortText.default('user'),
  ownerId: shortText,
  handle: handleSchema.optional(),
  /** Absolute path of the work tree; the daemon's home directory when absent. */
  cwd: z.string().startsWith('/', 'must be an absolute path').max(4096).optional(),
  priority: z.int().min(-1000).max(1000).default(0),
  timeoutPolicy: timeoutPolicySchema.partial().optional(),
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
    /** `provider/model`; the person's default when absent. */
    model: shortText.optional(),
  }),
  z.strictObject({
    ...startFields,
    runnerId: z.literal('command'),
    argv: z.array(z.string().max(131_072)).min(1).max(4096),
  }),
]);
export type StartWorkUnit = z.output<typeof startWorkUnitSchema>;
export type StartWorkUnitInput = z.input<typeof startWorkUnitSchema>;
