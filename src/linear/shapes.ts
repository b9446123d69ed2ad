/** What lies in the outbox, read strictly: Linear refuses a field too many like one too few. */
import { z } from 'zod';
import type { ActivityContent, SessionUpdate } from './port.ts';

const text = z.string().min(1);
const body = <Type extends string>(type: Type) =>
  z.strictObject({ type: z.literal(type), body: text });

const contentSchema = z.discriminatedUnion('type', [
  body('thought'),
  z.strictObject({
    type: z.literal('action'),
    action: text,
    parameter: text,
    result: text.exactOptional(),
  }),
  body('elicitation'),
  body('response'),
  body('error'),
]) satisfies z.ZodType<ActivityContent>;

export const activityBodySchema = z.strictObject({
  content: contentSchema,
  signal: z.enum(['auth', 'select']).exactOptional(),
  signalMetadata: z.record(z.string(), z.unknown()).exactOptional(),
});
export type ActivityBody = z.infer<typeof activityBodySchema>;

export const sessionBodySchema = z.strictObject({
  addedExternalUrls: z.array(z.strictObject({ label: text, url: text })).exactOptional(),
  plan: z
    .array(
      z.strictObject({
        content: text,
        status: z.enum(['pending', 'inProgress', 'completed', 'canceled']),
      }),
    )
    .exactOptional(),
}) satisfies z.ZodType<SessionUpdate>;

export const issueBodySchema = z.strictObject({
  issueId: text,
  stateId: text.exactOptional(),
  delegateId: text.exactOptional(),
});
export type IssueBody = z.infer<typeof issueBodySchema>;
