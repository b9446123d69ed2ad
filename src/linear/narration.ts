/**
 * Reads the events of a work unit one after the other and says what is to be told of them.
 *
 * Pure: the state is plain JSON and is stored with what was told, so whoever goes on from it,
 * in this process or the next, says nothing twice and leaves nothing out.
 */
import { isLossCode, LOSSES } from '../domain/outcome-codes.ts';
import type { EventRow } from '../store/events.ts';
import {
  describe,
  type Ending,
  endingOf,
  type Question,
  RESUMING,
  type Said,
  type Speech,
} from './activities.ts';
import { type Link, planOf, pullRequestsIn } from './found.ts';
import type { ActivityContent, SessionUpdate } from './port.ts';
import { boundMarkdown, isBlank } from './text.ts';

export interface Narration {
  /** The last event that was read. */
  readonly seq: number;
  readonly ended: boolean;
  /** The message of the model that is being said. */
  readonly message: Message | null;
  /** Text of a message that may be the last one: then it is the answer, else a thought. */
  readonly held: string | null;
  /** Calls under way, by id. */
  readonly calls: Readonly<Record<string, OpenCall>>;
  /** Calls that nobody was told of, by tool, since there was too much to tell. */
  readonly untold: Readonly<Record<string, number>>;
  /** Questions that a person was asked, by approval. */
  readonly asked: readonly string[];
  /** The runner's last text. */
  readonly final: string | null;
  readonly links: readonly string[];
}

interface OpenCall {
  readonly tool: string;
  readonly arguments: unknown;
}

interface Message {
  /** Attempt and number of the message. */
  readonly key: string;
  /** By index of the block. */
  readonly blocks: Readonly<Record<string, { readonly thought: boolean; readonly text: string }>>;
}

export const BEGINNING: Narration = {
  seq: 0,
  ended: false,
  message: null,
  held: null,
  calls: {},
  untold: {},
  asked: [],
  final: null,
  links: [],
};

export type Told =
  | { readonly kind: 'said'; readonly said: Said }
  | { readonly kind: 'session'; readonly update: SessionUpdate }
  /** The last word; null when there is none to say. */
  | { readonly kind: 'last'; readonly content: ActivityContent | null };

/** An approval as far as it is told. */
export interface Asked extends Question {
  readonly status: 'pending' | 'approved' | 'denied' | 'expired' | 'dropped';
}

/** What telling needs to know beside the events. */
export interface Surroundings {
  readonly speech: Speech;
  readonly handle: string;
  /** The question that an event is about. */
  approval(event: Pick<EventRow, 'attemptId' | 'data'>): Asked | null;
  /** Too much waits already: what only passes is left out, and calls are counted. */
  pressed(): boolean;
}

// What is kept of a text while it is being said; the mapping cuts it further.
const TEXT_LENGTH = 24_000;
const THINKING_LENGTH = 1_500;
const CALLS = 64;
const LINKS = 20;
const ASKED = 50;

const text = (event: EventRow, name: string): string | null => {
  const value = event.data[name];
  return typeof value === 'string' ? value : null;
};
const number = (event: EventRow, name: string): number => {
  const value = event.data[name];
  return typeof value === 'number' ? value : 0;
};

type Step = { readonly state: Narration; readonly told: readonly Told[] };

const quiet = (state: Narration): Step => ({ state, told: [] });
const say = (said: Said): Told => ({ kind: 'said', said });

function thoughts(speech: Speech, texts: readonly (string | null)[]): Told[] {
  const whole = texts.filter((one) => one !== null && !isBlank(one)).join('\n\n');
  const content = speech.thought(whole);
  return content === null ? [] : [say({ content })];
}

/** What the message held so far, in the order of its blocks. */
function partsOf({ blocks }: Message): { thought: string; said: string } {
  const inOrder = Object.entries(blocks).sort(([a], [b]) => Number(a) - Number(b));
  const join = (isThought: boolean): string =>
    inOrder
      .filter(([, { thought }]) => thought === isThought)
      .map(([, block]) => block.text.trim())
      .filter((one) => one !== '')
      .join('\n\n');
  return { thought: join(true), said: join(false) };
}

/** Whatever was said before something else happens is no answer, so it is a thought. */
function flush(state: Narration, { speech }: Surroundings): Step {
  const { thought, said } = state.message ? partsOf(state.message) : { thought: '', said: '' };
  // What it tells people is never cut off by what it thought before.
  const short = boundMarkdown(thought, THINKING_LENGTH);
  const told = [...thoughts(speech, [state.held]), ...thoughts(speech, [short, said])];
  return { state: { ...state, held: null, message: null }, told };
}

const keyOf = (event: EventRow): string => `${event.attemptId} ${number(event, 'message')}`;

function piece(state: Narration, event: EventRow, around: Surroundings): Step {
  const key = keyOf(event);
  const before = state.message?.key === key && state.held === null ? null : flush(state, around);
  const { state: now, told } = before ?? quiet(state);
  const block = String(number(event, 'block'));
  const message = now.message ?? { key, blocks: {} };
  const known = event.data['replace'] === true ? '' : (message.blocks[block]?.text ?? '');
  const whole = (known + (text(event, 'delta') ?? '')).slice(0, TEXT_LENGTH);
  const blocks = {
    ...message.blocks,
    [block]: { thought: event.type === 'agent.thought', text: whole },
  };
  return { state: { ...now, message: { key, blocks } }, told };
}

/** A message that calls tools is told at once; any other may be the answer and is held. */
function messageEnd(state: Narration, event: EventRow, around: Surroundings): Step {
  if (state.message?.key !== keyOf(event)) return quiet(state);
  if (text(event, 'stopReason') === 'toolUse') return flush(state, around);
  const { thought, said } = partsOf(state.message);
  const told = thoughts(around.speech, [thought]);
  return { state: { ...state, message: null, held: said === '' ? null : said }, told };
}

function withoutCall(state: Narration, id: string): Narration {
  const { [id]: _gone, ...calls } = state.calls;
  return { ...state, calls };
}

function toolStart(before: Narration, event: EventRow, around: Surroundings): Step {
  const { state, told } = flush(before, around);
  const given = event.data['arguments'];
  // What is kept until its end is a line, not the arguments.
  const call = { tool: text(event, 'tool') ?? '', arguments: describe(given) };
  const id = text(event, 'toolCallId') ?? '';
  const room = Object.keys(state.calls).length < CALLS;
  const calls = room ? { ...state.calls, [id]: call } : state.calls;
  const plan = planOf(call.tool, given);
  return {
    state: { ...state, calls },
    told: [
      ...told,
      ...(plan === null ? [] : [{ kind: 'session', update: { plan } } as const]),
      ...(around.pressed() ? [] : [say(around.speech.started(call))]),
    ],
  };
}

/** Links that were not told before. */
function linksIn(state: Narration, ...texts: readonly string[]): Step {
  const found = texts.flatMap(pullRequestsIn).filter(({ url }) => !state.links.includes(url));
  const news = [...new Map(found.map((link): [string, Link] => [link.url, link])).values()];
  const fresh = news.slice(0, Math.max(0, LINKS - state.links.length));
  if (fresh.length === 0) return quiet(state);
  return {
    state: { ...state, links: [...state.links, ...fresh.map(({ url }) => url)] },
    told: [{ kind: 'session', update: { addedExternalUrls: fresh } }],
  };
}

/** Calls that were only counted, as one. */
function catchUp(state: Narration, { speech }: Surroundings): Step {
  if (Object.keys(state.untold).length === 0) return quiet(state);
  return { state: { ...state, untold: {} }, told: [say(speech.several(state.untold))] };
}

function callOver(
  before: Narration,
  event: EventRow,
  result: { readonly text: string; readonly isError: boolean },
  around: Surroundings,
): Step {
  const id = text(event, 'toolCallId') ?? '';
  const tool = text(event, 'tool') ?? '';
  const open = Object.hasOwn(before.calls, id) ? before.calls[id] : undefined;
  const call = open ?? { tool, arguments: event.data['arguments'] };
  const linked = linksIn(withoutCall(before, id), result.text);
  if (around.pressed()) {
    const name = tool === '' ? 'tool' : tool;
    const known = Object.hasOwn(linked.state.untold, name) ? linked.state.untold[name] : 0;
    const untold = { ...linked.state.untold, [name]: (known ?? 0) + 1 };
    return { state: { ...linked.state, untold }, told: linked.told };
  }
  const caught = catchUp(linked.state, around);
  const told = [...caught.told, say(around.speech.ended(call, result)), ...linked.told];
  return { state: caught.state, told };
}

/** A question is told once, as long as it is open; its answer sets the session to work again. */
function approvalChanged(before: Narration, event: EventRow, around: Surroundings): Step {
  const row = around.approval(event);
  if (row === null) return quiet(before);
  const { approvalId: id } = row;
  const wasAsked = before.asked.includes(id);
  if (row.status === 'pending' && !wasAsked) {
    const { state, told } = flush(before, around);
    const asked = [...state.asked.slice(1 - ASKED), id];
    return { state: { ...state, asked }, told: [...told, say(around.speech.question(row))] };
  }
  if (row.status === 'pending' || row.status === 'dropped' || !wasAsked) return quiet(before);
  const words = {
    approved: 'Approved. Going on.',
    denied: 'Denied. Going on without it.',
    expired: 'Nobody answered in time.',
  };
  const asked = before.asked.filter((one) => one !== id);
  return {
    state: { ...before, asked },
    told: thoughts(around.speech, [words[row.status]]),
  };
}

function queued(state: Narration, event: EventRow, around: Surroundings): Step {
  if (text(event, 'reason') === 'resume') return resumed(state, event, around);
  const { speech, pressed } = around;
  if (text(event, 'reason') !== 'provider_backoff' || pressed()) return quiet(state);
  const message = (text(event, 'errorMessage') ?? '').replace(/[.\s]+$/, '');
  const at = text(event, 'nextStartAt') ?? 'soon';
  const content = speech.thought(`The model provider failed: ${message}. Next try: ${at}`);
  return content === null ? quiet(state) : { state, told: [say({ content, ephemeral: true })] };
}

/** Lost, and gone on with by itself: Linear is told why there was silence. */
function resumed(before: Narration, event: EventRow, around: Surroundings): Step {
  const { state, told } = flush(before, around);
  const cause = text(event, 'cause') ?? '';
  const why = isLossCode(cause) ? LOSSES[cause] : 'It was interrupted';
  return { state, told: [...told, ...thoughts(around.speech, [`${why}. ${RESUMING}`])] };
}

const ENDINGS: Readonly<Record<string, Ending['status']>> = {
  'work_unit.succeeded': 'succeeded',
  'work_unit.failed': 'failed',
  'work_unit.cancelled': 'cancelled',
};

/** The end of the work: links first, then the one last word. */
export function conclude(
  before: Narration,
  ending: Omit<Ending, 'text' | 'handle'>,
  around: Surroundings,
): Step {
  const said = before.message ? partsOf(before.message).said : '';
  const answer = [before.final, before.held, said].find((one) => one && !isBlank(one)) ?? null;
  const { state, told } = linksIn(before, ending.status === 'succeeded' ? (answer ?? '') : '');
  const content = endingOf(around.speech, { ...ending, handle: around.handle, text: answer });
  return {
    state: { ...BEGINNING, seq: state.seq, links: state.links, ended: true },
    told: [...told, { kind: 'last', content }],
  };
}

function read(state: Narration, event: EventRow, around: Surroundings): Step {
  const { type } = event;
  const status = ENDINGS[type];
  if (status !== undefined) {
    const errorCode = text(event, 'errorCode');
    return conclude(
      state,
      { status, errorCode, errorMessage: text(event, 'errorMessage') },
      around,
    );
  }
  switch (type) {
    case 'agent.thought':
      return piece(state, event, around);
    case 'agent.message':
      return event.data['end'] === true
        ? messageEnd(state, event, around)
        : piece(state, event, around);
    case 'tool.start':
      return toolStart(state, event, around);
    case 'tool.end':
      return callOver(
        state,
        event,
        { text: text(event, 'result') ?? '', isError: event.data['isError'] === true },
        around,
      );
    case 'tool.refused': {
      const { state: now, told } = flush(state, around);
      const refusal = { text: `Not run. ${text(event, 'reason') ?? ''}`, isError: false };
      const step = callOver(now, event, refusal, around);
      return { ...step, told: [...told, ...step.told] };
    }
    case 'runner.finished':
      return quiet({ ...state, final: text(event, 'text')?.slice(0, TEXT_LENGTH) ?? null });
    case 'attempt.opened':
      return quiet({ ...state, calls: {}, final: null });
    case 'approval.requested':
    case 'approval.changed':
      return approvalChanged(state, event, around);
    case 'work_unit.queued':
      return queued(state, event, around);
    case 'work_unit.stale':
      // Whether anybody has to do something is decided with the loss, or by the turn.
      return flush(state, around);
    default:
      return quiet(state);
  }
}

/** The next event: what is to be told of it, and the state after it. Nothing follows an end. */
export function narrate(state: Narration, event: EventRow, around: Surroundings): Step {
  if (state.ended || event.seq <= state.seq) return quiet(state);
  const step = read(state, event, around);
  return { ...step, state: { ...step.state, seq: event.seq } };
}
