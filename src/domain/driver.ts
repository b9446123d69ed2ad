/**
 * Drivers: a command that looks for work (the census), and what is run for each subject it
 * finds. Shapes only; docs/drivers.md is the page for people.
 */
import { z } from 'zod';
import { environmentFilesSchema, environmentSchema } from './environment.ts';
import { LEFTOVER_POLICIES, outcomeContractSchema } from './outcome.ts';
import { PROMPT_MAX, shortText } from './request.ts';
import { SANDBOX_MODES } from './sandbox.ts';
import { spendCeilingSchema } from './spend.ts';
import { carriedText } from './text.ts';
import { toolPolicySchema } from './tool-policy-schema.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** `ownerType` of the work unit that is a census; its `ownerId` is the driver's name. */
export const DRIVER_CENSUS = 'driver_census';

export const driverNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/,
    'a driver is 1 to 32 characters of a-z, 0-9 and "-", beginning and ending with a letter or digit',
  );

const absolutePath = carriedText(4096).startsWith('/', 'must be an absolute path');
const argv = z.array(carriedText(131_072)).min(1).max(4096);

/** What is run for a subject: a command, or an agent with a prompt; one of the three. */
const runSchema = z
  .strictObject({
    argv: argv.optional(),
    /** `{{handle}}`, `{{subject}}`, `{{title}}` and `{{vars.NAME}}` are replaced. */
    prompt: carriedText(PROMPT_MAX)
      .refine((value) => value.trim() !== '', 'the prompt is empty')
      .optional(),
    /** The same in a file, read at each tick. */
    promptFile: absolutePath.optional(),
    /** `provider/model` of the agent; the person's default when absent. */
    model: shortText.optional(),
  })
  .refine(
    (run) => [run.argv, run.prompt, run.promptFile].filter((one) => one !== undefined).length === 1,
    'give one of argv, prompt and promptFile',
  )
  .refine(({ argv: command, model }) => command === undefined || model === undefined, {
    path: ['model'],
    message: 'is for prompts: a command asks no model',
  });

export const driverSpecSchema = z
  .strictObject({
    /** Prints one line of JSON for each subject that there is work about. */
    census: z.strictObject({
      argv,
      timeoutMs: z
        .int()
        .min(SECOND)
        .max(DAY)
        .default(2 * MINUTE),
    }),
    /** From one tick to the next, milliseconds; only by `driver tick` when absent. */
    every: z
      .int()
      .min(SECOND)
      .max(30 * DAY)
      .optional(),
    /** At most this much later, milliseconds; a tenth of `every` when absent. */
    jitter: z.int().min(0).max(DAY).optional(),
    run: runSchema,
    /** The field of a census line that is the handle of its work. */
    handleFrom: carriedText(64).default('handle'),
    outcome: outcomeContractSchema.optional(),
    leftovers: z.enum(LEFTOVER_POLICIES).default('fail'),
    hardTimeoutMs: z
      .int()
      .min(SECOND)
      .max(30 * DAY)
      .default(90 * MINUTE),
    /** Of the census and of each run that its line gives no other; where absent each line has to. */
    cwd: absolutePath.optional(),
    priority: z.int().min(-1000).max(1000).default(0),
    /** Subjects that are worked on at once, their verification included. */
    maxAtOnce: z.int().min(1).max(1000).default(1),
    environment: environmentSchema.default({}),
    environmentFiles: environmentFilesSchema.default([]),
    toolPolicy: toolPolicySchema.optional(),
    sandbox: z.enum(SANDBOX_MODES).optional(),
    /** Of each run. */
    spendCeiling: spendCeilingSchema.optional(),
  })
  .refine(({ toolPolicy, run }) => toolPolicy === undefined || run.argv === undefined, {
    path: ['toolPolicy'],
    message: 'is for prompts: nobody stands before what a command does',
  });
export type DriverSpec = z.output<typeof driverSpecSchema>;
export type DriverSpecInput = z.input<typeof driverSpecSchema>;

/** What a driver is after: `removed` ones keep their name's tick numbers, so that none comes twice. */
export const DRIVER_STATES = ['active', 'paused', 'removed'] as const;
export const DRIVER_SOURCES = ['cli', 'file'] as const;
export type DriverSource = (typeof DRIVER_SOURCES)[number];

/** Why a subject of a census was not started, each with the sentence a person reads. */
export const SKIPS = {
  held: 'somebody stopped its work; it waits until it is resumed',
  busy: 'there is work on it that has not ended',
  verifying: 'what its work left behind is being verified',
  newer: 'work on it ended after this census had begun',
  full: 'as many as may be are worked on',
  stopped: 'the driver was paused, changed or removed meanwhile',
  unusable: 'no work can be asked for it',
} as const;
export type Skip = keyof typeof SKIPS;

const tickSubjectSchema = z.object({
  subject: z.string(),
  handle: z.string(),
  action: z.enum(['started', 'skipped']),
  /** Why it was skipped. */
  code: z.enum(Object.keys(SKIPS) as [Skip, ...Skip[]]).nullable(),
  message: z.string().nullable(),
  /** The work that was started, or that it was skipped for. */
  workUnitId: z.string().nullable(),
});
export type TickSubject = z.output<typeof tickSubjectSchema>;

/** What became of a tick. */
export const tickReportSchema = z.object({
  tick: z.int(),
  /** The census; null where it could not even be asked for. */
  censusId: z.string().nullable(),
  startedAt: z.string(),
  endedAt: z.string(),
  ok: z.boolean(),
  /** Why it failed. */
  message: z.string().nullable(),
  /** Of all that the census named; `subjects` tells of the first ones. */
  found: z.int(),
  started: z.int(),
  subjects: z.array(tickSubjectSchema),
});
export type TickReport = z.output<typeof tickReportSchema>;

/** Subjects that a report keeps. */
export const REPORT_SUBJECTS = 500;

/** A hold that somebody placed without any work having been stopped. */
export const HELD_BY_REQUEST = 'held_by_request';
