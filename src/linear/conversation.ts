/**
 * Which conversation of Pi's a session of Linear's goes on with. One that is gone or damaged is
 * not repaired: a person is told, and what they write next begins another.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { LinearSessionRow } from '../store/linear-turns.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { attemptPaths } from '../supervisor/attempt-directory.ts';
import type { Context } from '../supervisor/context.ts';
import { eachSessionLine } from '../supervisor/session-state.ts';

const factSchema = z.object({ generation: z.int().positive() });
const factOf = ({ id }: Pick<LinearSessionRow, 'id'>): string => `conversation ${id}`;

/** 1, and one more for each that was lost. */
export function generationOf(
  { linearFacts }: Pick<Context['store'], 'linearFacts'>,
  session: Pick<LinearSessionRow, 'id'>,
): number {
  const found = factSchema.safeParse(linearFacts.get(factOf(session))?.value);
  return found.success ? found.data.generation : 1;
}

/** Linear's ids are UUIDs; a conversation's name is made of small letters, digits and dashes. */
export function conversationOf(
  store: Pick<Context['store'], 'linearFacts'>,
  session: Pick<LinearSessionRow, 'id'>,
): string {
  const id = session.id.toLowerCase().replaceAll(/[^a-z0-9._-]/g, '-');
  const generation = generationOf(store, session);
  return `linear-${id.slice(0, 100)}${generation === 1 ? '' : `-${generation}`}`;
}

/** Something was said in it, and its file is not there. */
export function isGone(
  { store, settings }: Pick<Context, 'store' | 'settings'>,
  session: Pick<LinearSessionRow, 'id'>,
): boolean {
  const name = conversationOf(store, session);
  return store.workUnits.hasSpoken(name) && !hasBegun({ store, settings }, session);
}

/** Whether the conversation holds anything: Pi makes its file with the first prompt. */
export function hasBegun(
  { store, settings }: Pick<Context, 'store' | 'settings'>,
  session: Pick<LinearSessionRow, 'id'>,
): boolean {
  const name = conversationOf(store, session);
  return existsSync(path.join(settings.sessionsDirectory, name, 'session.jsonl'));
}

/** What comes next begins anew. Within the transaction that tells a person of it. */
export function beginAnew(
  store: Pick<Context['store'], 'linearFacts'>,
  session: Pick<LinearSessionRow, 'id'>,
  at: string,
): void {
  const generation = generationOf(store, session) + 1;
  store.linearFacts.put(factOf(session), { generation }, at);
}

const entrySchema = z.looseObject({
  timestamp: z.string(),
  message: z.looseObject({ role: z.literal('user'), content: z.array(z.looseObject({})) }),
});

/**
 * Whether the model was told the prompt of a work unit. Only the conversation says: a wrapper
 * that runs, or a Pi that starts, may be gone before it has taken the prompt.
 */
export async function wasTold(
  { store, settings }: Pick<Context, 'store' | 'settings'>,
  { id, request, createdAt }: Pick<WorkUnitRow, 'id' | 'request' | 'createdAt'>,
): Promise<boolean> {
  const { prompt } = request;
  const attempts = store.attempts.listByWorkUnit(id);
  const [attempt] = attempts;
  const wasOpened = attempts.some(({ opened }) => opened !== null);
  if (!attempt || !wasOpened || prompt === undefined) return false;
  const { sessionFile } = attemptPaths(settings, attempt);
  // As JSON has it: most lines need not be parsed.
  const written = JSON.stringify(prompt);
  let isThere = false;
  const take = (line: string): void => {
    if (isThere || !line.includes(USER)) return;
    const entry = entrySchema.safeParse(parsed(line));
    if (!entry.success) return;
    const at = Date.parse(entry.data.timestamp);
    // No other work had the conversation since; an extension may have changed the words. Where a
    // clock was set back, the words tell, but not the same ones of an earlier turn.
    const isLater = at >= Date.parse(attempt.createdAt);
    isThere = isLater || (line.includes(written) && at >= Date.parse(createdAt) - CLOCK_MS);
  };
  try {
    await eachSessionLine(sessionFile, take);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  return isThere;
}

const USER = '"role":"user"';
/** Two readings of one clock, rounded differently. */
const CLOCK_MS = 5;

function parsed(line: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    return null; // Torn: its writer died.
  }
}
