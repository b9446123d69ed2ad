/**
 * Tells Linear what goes on in the work unit of a turn: reads its events after a cursor and
 * puts activities into the outbox, each exactly once. Cursor and activities are one commit.
 */
import { z } from 'zod';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import { CURSOR_PREFIX } from '../store/linear-outbox.ts';
import type { Context } from '../supervisor/context.ts';
import type { Transaction } from '../supervisor/writer.ts';
import {
  createSpeech,
  describe,
  type Ending,
  type Speech,
  STARTING,
  STILL_WORKING,
} from './activities.ts';
import { type Addressee, changeSession, type OfTurn, say, sayLast } from './enqueue.ts';
import {
  BEGINNING,
  conclude,
  type Narration,
  narrate,
  type Surroundings,
  type Told,
} from './narration.ts';
import type { Outbox } from './outbox.ts';
import type { SessionUpdate } from './port.ts';

/** Linear takes a session for dead after 30 minutes of silence. */
export const KEEPALIVE_MS = 15 * 60_000;
/** Activities of one session that wait, above which less is told. */
const CROWDED = 10;
const PAGE = 500;

export interface NarratedTurn {
  readonly sessionId: string;
  readonly turnId: string;
  readonly workUnitId: string;
  /** The events of the work unit up to here are another turn's; 0 when left out. */
  readonly afterSeq?: number;
}

export interface NarratorParts
  extends Pick<Context, 'store' | 'writer' | 'entropy' | 'log' | 'workspace'> {
  readonly outbox: Pick<Outbox, 'wake' | 'pressed'>;
  /** What people call the agent in Linear: never in a text of ours. */
  readonly ownNames: readonly string[];
}

export interface Narrator {
  /**
   * Says at once that somebody is at work, however full the outbox is: within 10 s of
   * `created` Linear wants to hear something. Said before, it is not said again.
   * @returns whether it was put into the outbox.
   */
  acknowledge(to: Addressee, text?: string): boolean;
  /** Reads all new events of a turn. @returns true once nothing more will be told of it. */
  narrate(turn: NarratedTurn): boolean;
  /** Breaks a silence that has become long. @returns milliseconds until it has to be asked again. */
  keepAlive(turn: NarratedTurn): number;
  /** Forgets what is remembered of a turn that nobody asks about any more; the store keeps it. */
  forget(turnId: string): void;
}

/** The name under which the cursor of a turn is stored. */
const factOf = (turnId: string): string => CURSOR_PREFIX + turnId;

const block = z.object({ thought: z.boolean(), text: z.string() });
const storedSchema = z.object({
  seq: z.int(),
  ended: z.boolean(),
  message: z.object({ key: z.string(), blocks: z.record(z.string(), block) }).nullable(),
  held: z.string().nullable(),
  calls: z.record(z.string(), z.object({ tool: z.string(), arguments: z.unknown() })),
  untold: z.record(z.string(), z.int()),
  asked: z.array(z.string()),
  final: z.string().nullable(),
  links: z.array(z.string()),
}) satisfies z.ZodType<Narration>;

class TurnNarrator implements Narrator {
  readonly #parts: NarratorParts;
  readonly #speech: Speech;
  /** Ahead of what is stored by events that nothing was told of: read again after a crash. */
  readonly #known = new Map<string, Narration>();

  constructor(parts: NarratorParts) {
    this.#parts = parts;
    this.#speech = createSpeech(parts.ownNames);
  }

  acknowledge(to: Addressee, text = STARTING): boolean {
    const { writer, outbox } = this.#parts;
    const content = this.#speech.thought(text, STARTING);
    if (content === null || this.#table.hasSpoken(to.sessionId, to.turnId)) return false;
    const isNew = writer.commit(({ at }) => {
      if (this.#table.hasSpoken(to.sessionId, to.turnId)) return false;
      return say(this.#parts, at, to, { content }, true);
    });
    outbox.wake();
    return isNew;
  }

  narrate(turn: NarratedTurn): boolean {
    const { writer, outbox, store } = this.#parts;
    const before = this.#stateOf(turn);
    const { state, told } = this.#readOn(turn, before);
    if (told.length > 0 || state.ended !== before.ended) {
      writer.commit((transaction) => {
        this.#put(transaction, turn, told);
        store.linearFacts.put(factOf(turn.turnId), state, transaction.at);
      });
      outbox.wake();
    }
    if (state.ended) this.#known.delete(turn.turnId);
    else this.#known.set(turn.turnId, state);
    return state.ended;
  }

  keepAlive(turn: NarratedTurn): number {
    const { store, writer, entropy, outbox } = this.#parts;
    const last = this.#table.lastActivity(turn.sessionId);
    const due = last === null ? 0 : Date.parse(last) + KEEPALIVE_MS - entropy.now();
    if (due > 0) return Math.min(due, KEEPALIVE_MS);
    // Linear shows that it waits for a person; a thought would take the question away.
    const open = store.approvals.open(turn.workUnitId);
    if (open.some(({ status }) => status === 'pending')) return KEEPALIVE_MS;
    const call = Object.values(this.#stateOf(turn).calls).at(-1);
    const doing = call === undefined ? '' : ` ${call.tool}: ${describe(call.arguments)}`;
    const content = this.#speech.thought(STILL_WORKING + doing, STILL_WORKING);
    if (content === null) return KEEPALIVE_MS;
    writer.commit(({ at }) => say(this.#parts, at, turn, { content, ephemeral: true }));
    outbox.wake();
    return KEEPALIVE_MS;
  }

  forget(turnId: string): void {
    this.#known.delete(turnId);
  }

  get #table() {
    return this.#parts.store.linearOutbox;
  }

  #stateOf({ turnId, afterSeq = 0 }: NarratedTurn): Narration {
    const remembered = this.#known.get(turnId);
    if (remembered) return remembered;
    const stored = this.#parts.store.linearFacts.get(factOf(turnId));
    return stored === null ? { ...BEGINNING, seq: afterSeq } : storedSchema.parse(stored.value);
  }

  #aroundOf(turn: NarratedTurn, handle: string, told: readonly Told[]): Surroundings {
    const { store, outbox } = this.#parts;
    const before = this.#table.backlog(turn.sessionId);
    return {
      speech: this.#speech,
      handle,
      pressed: () => outbox.pressed() || before + told.length > CROWDED,
      approval: ({ attemptId, data: { approvalId, toolCallId } }) => {
        // The runner asks by its call; from then on the question has a name.
        const row =
          typeof approvalId === 'string'
            ? store.approvals.get(approvalId)
            : store.approvals.getByCall(attemptId ?? '', String(toolCallId));
        return row && { ...row, approvalId: row.id };
      },
    };
  }

  /** All that is new in the events, and the end if the work unit has one they do not tell. */
  #readOn(turn: NarratedTurn, before: Narration): { state: Narration; told: Told[] } {
    const { store } = this.#parts;
    const workUnit = store.workUnits.get(turn.workUnitId);
    const told: Told[] = [];
    let state = before;
    if (!workUnit) return { state, told };
    const around = this.#aroundOf(turn, workUnit.handle, told);
    const take = (step: { state: Narration; told: readonly Told[] }): void => {
      state = step.state;
      told.push(...step.told);
    };
    for (let more = true; more && !state.ended; ) {
      const page = store.events.page(turn.workUnitId, state.seq, PAGE);
      for (const event of page) take(narrate(state, event, around));
      more = page.length === PAGE;
    }
    const { status, errorCode, errorMessage } = workUnit;
    // Its events were removed before anybody read them.
    if (!state.ended && isTerminal(status)) {
      take(conclude(state, { status, errorCode, errorMessage }, around));
    }
    return { state, told };
  }

  /** A link that an earlier turn has told is not told again. */
  #change(at: string, turn: OfTurn, update: SessionUpdate): void {
    const links = update.addedExternalUrls?.filter(
      ({ url }) => !this.#table.hasLink(turn.sessionId, url),
    );
    if (links?.length === 0) return;
    const news = links === undefined ? update : { ...update, addedExternalUrls: links };
    changeSession(this.#parts, at, turn, news);
  }

  #put({ at }: Transaction, turn: OfTurn, told: readonly Told[]): void {
    for (const one of told) {
      if (one.kind === 'said') say(this.#parts, at, turn, one.said);
      else if (one.kind === 'session') this.#change(at, turn, one.update);
      else if (one.content === null || !sayLast(this.#parts, at, turn, one.content)) {
        this.#table.dropOfTurn(turn.turnId);
      }
    }
  }
}

const isTerminal = (status: string): status is Ending['status'] =>
  (TERMINAL_STATUSES as ReadonlySet<string>).has(status);

export const createNarrator = (parts: NarratorParts): Narrator => new TurnNarrator(parts);
