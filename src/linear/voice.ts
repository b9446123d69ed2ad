/** What the agent says in Linear, by narrator and outbox: acknowledgements, progress, last words. */
import type { LinearTurnRow } from '../store/linear-turns.ts';
import type { Context } from '../supervisor/context.ts';
import { createSpeech, STARTING } from './activities.ts';
import type { Voice } from './agent.ts';
import { say, sayLast } from './enqueue.ts';
import { KEEPALIVE_MS, type NarratedTurn, type Narrator } from './narrator.ts';
import type { Outbox } from './outbox.ts';
import type { Ear } from './turns.ts';

export interface VoiceParts {
  readonly context: Context;
  readonly narrator: Narrator;
  readonly outbox: Pick<Outbox, 'wake'>;
  readonly names: readonly string[];
}

const WAITING = 'Waiting until it can begin.';
const STOPPED = 'Stopped. Write here and it goes on from where it was.';

function narrated({ id, sessionId, workUnitId }: LinearTurnRow): NarratedTurn | null {
  return workUnitId === null ? null : { sessionId, turnId: id, workUnitId };
}

/** See {@link Voice} and {@link Ear}. */
export function createVoice({ context, narrator, outbox, names }: VoiceParts): Voice & Ear {
  const { store, writer, entropy } = context;
  const speech = createSpeech(names);
  return {
    acknowledge: ({ at }, sessionId) => {
      const content = speech.thought(STARTING);
      if (content) say(context, at, { sessionId, turnId: null }, { content }, true);
      outbox.wake();
    },
    confirmStop: ({ at }, sessionId) => {
      const content = speech.response(STOPPED);
      // That somebody was heard, or is asked something, is of no use after this.
      store.linearOutbox.dropProgress(sessionId);
      say(context, at, { sessionId, turnId: null }, { content }, true);
      outbox.wake();
    },
    wait: ({ sessionId }) => {
      const { lastActivity, lastType } = store.linearOutbox;
      const at = lastActivity(sessionId);
      const isLong = at !== null && entropy.now() - Date.parse(at) >= KEEPALIVE_MS;
      // Linear shows that it waits for a person; a thought would take the question away.
      if (!isLong || lastType(sessionId) === 'elicitation') return;
      const content = speech.thought(WAITING);
      if (content === null) return;
      const said = { content, ephemeral: true } as const;
      writer.commit((t) => say(context, t.at, { sessionId, turnId: null }, said));
      outbox.wake();
    },
    follow: (turn) => {
      const what = narrated(turn);
      if (what === null) return;
      narrator.narrate(what);
      narrator.keepAlive(what);
    },
    conclude: (turn) => {
      const what = narrated(turn);
      if (what !== null) narrator.narrate(what);
      narrator.forget(turn.id);
    },
    fail: ({ at }, { id, sessionId }, message) => {
      sayLast(context, at, { sessionId, turnId: id }, speech.error(message));
      outbox.wake();
    },
    askForHelp: ({ at }, { id, sessionId }, message) => {
      sayLast(context, at, { sessionId, turnId: id }, speech.asking(message));
      outbox.wake();
    },
    forget: ({ id }) => narrator.forget(id),
    isSettled: ({ id }) => {
      const terminal = store.linearOutbox.terminalOf(id);
      return terminal === null || terminal.state !== 'pending';
    },
  };
}
