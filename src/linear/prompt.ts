/** What Linear tells of a session, as facts of ours and as words for the model. */
import type { SessionFacts } from '../store/linear-turns.ts';
import type { AgentSession, CreatedEvent, PromptedEvent } from './payloads.ts';

/** Facts of a session, from whatever event names it. */
export function factsOf(
  session: AgentSession,
  organizationId: string,
  known: boolean,
): SessionFacts {
  const { issue } = session;
  const issueId = session.issueId ?? issue?.id ?? null;
  return {
    id: session.id,
    organizationId,
    // Without an issue (a document, say) the thread is a channel of its own.
    channelKey: issueId ?? session.id,
    issueId,
    identifier: issue?.identifier ?? null,
    title: issue?.title ?? null,
    url: issue?.url ?? session.url,
    teamId: issue?.teamId ?? issue?.team?.id ?? null,
    creatorId: session.creatorId ?? session.creator?.id ?? null,
    known,
    own: false,
  };
}

const section = (title: string, text: string | null | undefined): string[] =>
  text == null || text.trim() === '' ? [] : [`## ${title}\n${text.trim()}`];

function guidanceText(guidance: CreatedEvent['guidance']): string {
  return guidance.map(({ body }) => body).join('\n\n');
}

/**
 * The first prompt of a session: Linear's own account of issue and thread where there is one,
 * else issue and comment. All of it was written by people, and is marked as what it is.
 */
export function openingPrompt({
  session,
  promptContext,
  previousComments,
  guidance,
}: CreatedEvent): string {
  const { issue, comment } = session;
  const named = issue ? `${issue.identifier ?? ''} ${issue.title ?? ''}`.trim() : '';
  const about = named === '' ? 'a thread in Linear' : `the Linear issue ${named}`;
  const told = promptContext ?? '';
  const own =
    told.trim() === ''
      ? [
          ...section('Description', issue?.description),
          ...section(
            'Earlier comments',
            previousComments.map(({ body }) => body ?? '').join('\n\n'),
          ),
          ...section('What you were asked', comment?.body),
        ]
      : section('Issue and thread', told);
  return [
    `You were asked to work on ${about}.${issue?.url ? ` ${issue.url}` : ''}`,
    ...own,
    ...section('How this workspace wants it', guidanceText(guidance)),
    'Do what is asked for. What you say last is posted to the thread as your answer.',
  ].join('\n\n');
}

/** What a person wrote. A text that is not there at all is still an answer to wait for. */
export const promptText = ({ activity }: PromptedEvent): string => activity.body;
