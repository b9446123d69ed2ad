/** The work unit of a turn. */
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import type { StartWorkUnitInput } from '../domain/request.ts';
import type { LinearSessionRow } from '../store/linear-turns.ts';
import type { Context } from '../supervisor/context.ts';
import { conversationOf } from './conversation.ts';
import { TURN_KIND, TURN_OWNER } from './turns.ts';

/** Further fields of every turn's request: model, policies, timeouts. */
export type TurnDefaults = Partial<Pick<StartWorkUnitInput, 'timeoutPolicy' | 'priority'>> & {
  readonly model?: string;
};

/** What is submitted; the session's conversation, and the issue as the subject of the work. */
export function requestOf(
  store: Context['store'],
  defaults: TurnDefaults,
  session: LinearSessionRow,
  work: { readonly prompt: string; readonly cwd: string },
): StartWorkUnitInput {
  return {
    ...defaults,
    kind: TURN_KIND,
    ownerType: TURN_OWNER,
    ownerId: session.id,
    createdByClientId: 'linear',
    runnerId: 'pi',
    conversation: conversationOf(store, session),
    ...work,
    externalSubject: `linear:${session.channelKey}`,
    leases: [{ type: 'external_workspace', key: `linear:${session.channelKey}` }],
  };
}

/** Why a request will never be taken, as a sentence for whoever asked; null for all that may pass. */
export function refusalOf(error: unknown): string | null {
  if (error instanceof z.ZodError) return `The work cannot be asked for: ${z.prettifyError(error)}`;
  if (!(error instanceof OutliveError)) return null;
  const isFinal = [400, 422].includes(error.status) || error.code === 'channel_closed';
  return isFinal ? error.message : null;
}
