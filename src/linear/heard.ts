/**
 * Which work a session's conversation has heard of. That an attempt ran is no proof: one that
 * was interrupted or killed before Pi had its prompt leaves words that nobody has heard.
 */
import path from 'node:path';
import type { LinearSessionRow } from '../store/linear-turns.ts';
import type { Context } from '../supervisor/context.ts';
import { sessionState } from '../supervisor/session-state.ts';
import { conversationOf } from './conversation.ts';

/** Whether the prompt of a work unit is in the conversation. */
export type Heard = (workUnitId: string) => boolean;

/**
 * Reads the conversation as it is now; nothing may be at work in it. Pi writes a prompt down
 * as soon as it has it, so the newest one is of the last work that was heard.
 */
export async function hearing(
  { store, settings }: Pick<Context, 'store' | 'settings'>,
  session: Pick<LinearSessionRow, 'id'>,
): Promise<Heard> {
  const name = conversationOf(store, session);
  const state = await sessionState(path.join(settings.sessionsDirectory, name, 'session.jsonl'));
  return (workUnitId) => {
    const [first] = store.attempts.listByWorkUnit(workUnitId);
    if (first === undefined || state.kind === 'empty') return false;
    // Nothing can be told from a damaged file: a person is asked, and nothing is said twice.
    if (state.kind === 'corrupt' || state.promptedAt === null) return first.opened !== null;
    return state.promptedAt >= first.createdAt;
  };
}
