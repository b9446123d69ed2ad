/** One line for events that are neither the runner's text nor its output. */
import type { EventView } from '../api/schemas.ts';
import { OUTCOME_STATES } from '../domain/outcome.ts';
import { formatDuration } from './duration.ts';
import { numberOf, stringOf, toolCallText } from './event-data.ts';
import { outcomeName } from './outcome-text.ts';
import { sanitizeLine } from './sanitize.ts';

/** What a person who watches wants to hear of; null for what only a program needs. */
export function noteOf(event: EventView): string | null {
  const note = NOTES[event.type]?.(event.data) ?? diagnostic(event);
  return note === null ? null : sanitizeLine(note);
}

type Note = (data: EventView['data']) => string | null;

const NOTES: Partial<Record<EventView['type'], Note>> = {
  started: (data) => {
    const model = stringOf(data, 'model');
    return `started ${stringOf(data, 'runner') ?? 'the runner'}${model ? ` with ${model}` : ''}`;
  },
  progress: (data) => stringOf(data, 'message'),
  'attempt.reattached': () => 're-attached: a new daemon took up the same attempt',
  'attempt.deadline': (data) =>
    `reached its hard timeout of ${formatDuration(numberOf(data, 'hardTimeoutMs') ?? 0)}`,
  'attempt.told_to_stop': (data) =>
    `told to stop (${stringOf(data, 'reason') ?? stringOf(data, 'by') ?? 'no reason given'})`,
  'work_unit.cancelling': (data) => withReason('cancelling', data),
  'work_unit.stale': (data) => withReason('lost', data),
  'work_unit.queued': (data) => backingOff(data),
  'outcome.settled': (data) => outcomeNote(data),
  'approval.requested': (data) => `asks before ${toolCallText(data)} (answer: outlive approvals)`,
  'approval.resolved': (data) => `the answer: ${stringOf(data, 'resolution') ?? 'none'}`,
  'approval.changed': (data) => checkpointNote(data),
  'tool.refused': (data) =>
    `refused ${toolCallText(data)} (by ${stringOf(data, 'by') ?? 'nobody'}: ${stringOf(data, 'reason') ?? ''})`,
};

function outcomeNote(data: EventView['data']): string {
  const state = OUTCOME_STATES.find((known) => known === data['state']) ?? 'pending';
  return `outcome ${outcomeName({ state, code: stringOf(data, 'code') })}`;
}

function withReason(what: string, data: EventView['data']): string {
  const reason = stringOf(data, 'reason') ?? stringOf(data, 'message');
  return reason === null ? what : `${what}: ${reason}`;
}

/** The rest is told by what follows from it. */
function checkpointNote(data: EventView['data']): string | null {
  const cause = stringOf(data, 'cause') ?? '';
  if (cause === 'expired') return 'nobody answered in time';
  return cause.startsWith('suspended:') ? 'suspended until there is an answer' : null;
}

/** Only work that a provider failed: everything else is queued at its beginning. */
function backingOff(data: EventView['data']): string | null {
  if (stringOf(data, 'reason') !== 'provider_backoff') return null;
  const [failures, of] = [numberOf(data, 'failures'), numberOf(data, 'maxAttempts')];
  const why = `${stringOf(data, 'errorCode')}: ${stringOf(data, 'errorMessage')}`;
  return `backing off until ${stringOf(data, 'nextStartAt')}, attempt ${failures} of ${of} failed (${why})`;
}

function diagnostic(event: EventView): string | null {
  if (!event.type.startsWith('diagnostic.')) return null;
  const told = stringOf(event.data, 'message') ?? stringOf(event.data, 'reason');
  return `${event.type}: ${told ?? JSON.stringify(event.data)}`;
}

/** A short account of any event, for the human form of `outlive events`. */
export function summaryOf(event: EventView): string {
  const { data, type } = event;
  if (type === 'tool.start') return sanitizeLine(toolCallText(data));
  if (type === 'tool.end') {
    const how = data['isError'] === true ? 'failed' : 'ok';
    return sanitizeLine(
      `${stringOf(data, 'tool') ?? ''} ${how}: ${stringOf(data, 'result') ?? ''}`,
    );
  }
  if (type === 'runner.finished') {
    const said = [stringOf(data, 'verdict'), stringOf(data, 'code'), stringOf(data, 'message')];
    return sanitizeLine(said.filter((part) => part !== null).join(' '));
  }
  const text = stringOf(data, 'delta') ?? stringOf(data, 'text');
  return text === null ? (noteOf(event) ?? briefJson(data)) : sanitizeLine(text);
}

function briefJson(data: EventView['data']): string {
  const json = JSON.stringify(data);
  return json === '{}' ? '' : sanitizeLine(json);
}
