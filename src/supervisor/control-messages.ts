/**
 * What a wrapper of any version says on its control socket, as far as a daemon has to know.
 * Fields that are missing or unknown cost nothing: whoever speaks lives.
 */
import { z } from 'zod';

const live = z.object({
  currentTool: z.string().nullable().catch(null),
  costUsd: z.number().nullable().catch(null),
  totalTokens: z.number().nullable().catch(null),
});
const NOTHING_LIVE = { currentTool: null, costUsd: null, totalTokens: null };
const v = z.int().min(1);

const messageSchema = z.discriminatedUnion('type', [
  z.object({ v, type: z.literal('hello'), nonce: z.string() }),
  z.object({
    v,
    type: z.literal('heartbeat'),
    ts: z.iso.datetime(),
    live: live.catch(NOTHING_LIVE),
  }),
  z.object({ v, type: z.literal('done'), id: z.string() }),
  z.object({ v, type: z.literal('error'), message: z.string().catch('without a message') }),
]);
/** A message that is understood, or one of a later version that is not meant for us. */
export type ControlMessage = z.infer<typeof messageSchema> | { readonly type: 'unknown' };

const anySchema = z.looseObject({ v, type: z.string() });
const KNOWN: ReadonlySet<string> = new Set(['hello', 'heartbeat', 'done', 'error']);

/** Reads one line; null when it is not the control protocol. */
export function parseControl(text: string): ControlMessage | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const message = messageSchema.safeParse(value);
  if (message.success) return message.data;
  const any = anySchema.safeParse(value);
  return any.success && !KNOWN.has(any.data.type) ? { type: 'unknown' } : null;
}
