/**
 * Which conversation of Pi's a session of Linear's goes on with. One that is gone or damaged is
 * not repaired: a person is told, and what they write next begins another.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { LinearSessionRow } from '../store/linear-turns.ts';
import type { Context } from '../supervisor/context.ts';

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
  if (!store.workUnits.hasSpoken(name)) return false;
  return !existsSync(path.join(settings.sessionsDirectory, name, 'session.jsonl'));
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
