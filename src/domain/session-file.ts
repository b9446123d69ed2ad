/**
 * What a Pi session file still says after its writer died: pure, line by line.
 *
 * The file is a header and then a tree of entries that only grows; each entry names its
 * parent, and the last one is where the conversation goes on. Pi skips a line it cannot
 * read. That is harmless for a torn last line, but a lost entry in the middle cuts off
 * everything before it, and the agent would go on without knowing what it did.
 */
import { z } from 'zod';

const headerSchema = z.looseObject({ type: z.literal('session'), cwd: z.string() });
const entrySchema = z.looseObject({
  type: z.string(),
  id: z.string(),
  parentId: z.string().nullable(),
  timestamp: z.string().nullish().catch(null),
});
const callSchema = z.looseObject({
  type: z.literal('toolCall'),
  id: z.string(),
  name: z.string(),
  arguments: z.unknown(),
});
const messageSchema = z.looseObject({
  role: z.string(),
  content: z.unknown(),
  toolCallId: z.string().optional(),
});

/** A call the model made, as the conversation has it. */
export interface SessionCall {
  readonly toolCallId: string;
  readonly tool: string;
  readonly arguments: unknown;
}

export type SessionState =
  /** No conversation yet: a first attempt that died before its prompt was written. */
  | { readonly kind: 'empty' }
  | {
      readonly kind: 'whole';
      /** Pi works there, wherever it is started. */
      readonly cwd: string;
      /** Calls of the conversation's last turn without a result in the file. */
      readonly openCalls: readonly SessionCall[];
      /** When the newest prompt was written, RFC 3339; null where the file does not say. */
      readonly promptedAt: string | null;
      /** Lines that cannot be read and that nothing hangs on: torn ends of earlier deaths. */
      readonly tornLines: number;
    }
  | { readonly kind: 'corrupt'; readonly line: number; readonly reason: string };

interface Entry {
  readonly parentId: string | null;
  readonly at: string | null;
  readonly message: z.output<typeof messageSchema> | null;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function callsOf(message: Entry['message']): SessionCall[] {
  if (message?.role !== 'assistant' || !Array.isArray(message.content)) return [];
  return message.content.flatMap((block) => {
    const call = callSchema.safeParse(block);
    if (!call.success) return [];
    const { id, name, arguments: given } = call.data;
    return [{ toolCallId: id, tool: name, arguments: given }];
  });
}

/** Takes a session file line by line; {@link SessionReading.state} judges what was taken. */
export class SessionReading {
  private readonly entries = new Map<string, Entry>();
  private cwd: string | null = null;
  private lines = 0;
  private torn = 0;
  private last: string | null = null;
  private damage: { line: number; reason: string } | null = null;

  /** One line without its LF. Empty lines count and say nothing. */
  take(text: string): void {
    this.lines += 1;
    if (text === '' || this.damage) return;
    const value = parse(text);
    if (value === undefined) {
      this.torn += 1;
      return;
    }
    if (this.cwd === null) this.takeHeader(value);
    else this.takeEntry(value);
  }

  /** The verdict over all lines so far. */
  state(): SessionState {
    if (this.damage) return { kind: 'corrupt', ...this.damage };
    // Pi refuses a file that does not begin with its header, unless it is empty.
    if (this.cwd === null) {
      if (this.torn === 0) return { kind: 'empty' };
      return { kind: 'corrupt', line: 1, reason: 'it does not begin with a session header' };
    }
    const path = this.pathToRoot();
    const prompt = path.find(({ message }) => message?.role === 'user');
    if (!prompt) return { kind: 'empty' };
    return {
      kind: 'whole',
      cwd: this.cwd,
      openCalls: this.openCalls(path),
      promptedAt: prompt.at,
      tornLines: this.torn,
    };
  }

  private takeHeader(value: unknown): void {
    const header = headerSchema.safeParse(value);
    if (header.success && this.torn === 0) this.cwd = header.data.cwd;
    else this.damaged('it does not begin with a session header');
  }

  private takeEntry(value: unknown): void {
    const entry = entrySchema.safeParse(value);
    if (!entry.success) {
      this.damaged('an entry without id or parent');
      return;
    }
    const { id, parentId, type, timestamp: at = null } = entry.data;
    const message = type === 'message' ? messageSchema.safeParse(entry.data['message']) : null;
    if (parentId !== null && !this.entries.has(parentId)) {
      this.damaged(`entry ${id} hangs on ${parentId}, which is not there`);
    } else if (message && !message.success) {
      this.damaged(`entry ${id} holds no message`);
    } else {
      this.entries.set(id, { parentId, at, message: message?.data ?? null });
      this.last = id;
    }
  }

  private damaged(reason: string): void {
    this.damage = { line: this.lines, reason };
  }

  /** The conversation Pi goes on with, newest first. */
  private pathToRoot(): Entry[] {
    const path: Entry[] = [];
    let at = this.last;
    while (at !== null) {
      const entry = this.entries.get(at);
      if (!entry) break;
      path.push(entry);
      at = entry.parentId;
    }
    return path;
  }

  private openCalls(path: readonly Entry[]): SessionCall[] {
    const answered = new Set<string>();
    for (const { message } of path) {
      if (message?.role === 'toolResult' && message.toolCallId) answered.add(message.toolCallId);
      if (message?.role === 'user') return [];
      if (message?.role === 'assistant') {
        return callsOf(message).filter(({ toolCallId }) => !answered.has(toolCallId));
      }
    }
    return [];
  }
}

/** Judges a whole file's text at once. */
export function readSession(text: string): SessionState {
  const reading = new SessionReading();
  for (const line of text.split('\n')) reading.take(line);
  return reading.state();
}
