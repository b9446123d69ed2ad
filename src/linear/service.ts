/** The Linear agent as one thing: what came in is worked off, turns are driven, words are sent. */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { TERMINAL_EVENT_TYPES } from '../domain/events.ts';
import { timestamp } from '../domain/ids.ts';
import type { Context } from '../supervisor/context.ts';
import { createHint } from '../supervisor/signal.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { createLinearAgent, type LinearAgent, type LinearAgentOptions } from './agent.ts';
import { createDeliveries, workOffNext } from './deliveries.ts';
import { createTurnHandlers } from './handlers.ts';
import { createNarrator } from './narrator.ts';
import { createOutbox, type Outbox } from './outbox.ts';
import { Places } from './place.ts';
import type { LinearApi } from './port.ts';
import type { Routing } from './routing.ts';
import type { TurnContext, TurnOrders } from './turns.ts';
import { createVoice } from './voice.ts';
import type { Worktrees } from './worktrees.ts';

export interface LinearServiceOptions {
  readonly context: Context;
  readonly supervisor: Pick<Supervisor, 'submit' | 'interrupt' | 'cancel'>;
  readonly api: LinearApi;
  readonly worktrees: Worktrees;
  readonly routing: Routing;
  readonly names: readonly string[];
  readonly request: LinearAgentOptions['request'];
  /** The app was taken away. */
  readonly onRevoked: () => void;
}

export interface LinearService {
  /** A delivery was stored: a hint. */
  deliver(): void;
  readonly outbox: Outbox;
  start(): void;
  /** Takes nothing more up; resolves when what is under way is stored. */
  close(): Promise<void>;
}

/** Events of a run are gathered for so long before they are told. */
const GATHER_MS = 250;
/** Without a hint the ledger is looked at again after this long, or after trouble with the store. */
const LOOK_MS = 30_000;
const TROUBLE_MS = 2_000;

class Service implements LinearService {
  readonly #options: LinearServiceOptions;
  readonly #agent: LinearAgent;
  readonly #turns: TurnContext;
  readonly #follow: (workUnitId: string) => void;
  readonly #deliveries = createHint();
  readonly #news = new Set<string>();
  readonly outbox: Outbox;
  #gathering: NodeJS.Timeout | null = null;
  #unsubscribe: () => void = () => undefined;
  #closing = false;
  #working: Promise<void> = Promise.resolve();

  constructor(options: LinearServiceOptions) {
    const { context, api, names, supervisor, request } = options;
    const { store, writer, entropy, log, workspace } = context;
    this.#options = options;
    const parts = { store, writer, entropy, log, workspace };
    // A last word that is out frees its issue for the next turn.
    this.outbox = createOutbox({ ...parts, api, onSettled: () => this.#agent.hint() });
    const narrator = createNarrator({ ...parts, outbox: this.outbox, ownNames: names });
    const voice = createVoice({ context, narrator, outbox: this.outbox, names });
    const places = new Places({ ...options, outbox: this.outbox });
    this.#turns = { store, entropy, ear: voice };
    this.#agent = createLinearAgent({ context, supervisor, voice, place: places.of, request });
    this.#follow = (workUnitId) => {
      const turn = store.linear.turnOfWork(workUnitId);
      if (turn?.state === 'running') voice.follow(turn);
    };
  }

  deliver(): void {
    this.#deliveries.raise();
  }

  start(): void {
    this.#unsubscribe = this.#options.context.hub.subscribe((events) => {
      for (const { workUnitId, type } of events) {
        this.#news.add(workUnitId);
        // Also of what sets a work tree up: a turn may wait for it.
        if (TERMINAL_EVENT_TYPES.has(type)) this.#agent.hint();
      }
      this.#gathering ??= setTimeout(() => this.#tell(), GATHER_MS);
    });
    this.#agent.start();
    this.#working = this.#workOff();
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#unsubscribe();
    if (this.#gathering) clearTimeout(this.#gathering);
    this.#deliveries.raise();
    await this.#working;
    await this.#agent.close();
    await this.outbox.stop();
  }

  #tell(): void {
    this.#gathering = null;
    const ids = [...this.#news];
    this.#news.clear();
    for (const id of ids) {
      try {
        this.#follow(id);
      } catch (error) {
        const { log } = this.#options.context;
        log.error(
          { err: error, workUnitId: id },
          'what a turn does could not be told; again later',
        );
      }
    }
  }

  async #workOff(): Promise<void> {
    const { context } = this.#options;
    const { store, writer, entropy, log } = context;
    let orders: TurnOrders[] = [];
    const deliveries = createDeliveries(store.linearDeliveries);
    const handlers = createTurnHandlers({
      context,
      turns: this.#turns,
      onOrders: (given) => orders.push(given),
      onRevoked: () => this.#revoked(),
    });
    const work = {
      deliveries,
      handlers,
      commit: writer.commit,
      now: () => timestamp(entropy),
      report: (delivery: { row: { id: string } }, error: unknown) =>
        log.error({ err: error, delivery: delivery.row.id }, 'a webhook could not be acted on'),
    };
    while (!this.#closing) {
      try {
        orders = [];
        const was = workOffNext(work);
        for (const one of orders) this.#agent.obey(one);
        // A backlog is not worked off in one breath: others have something to do too.
        if (was) await nextTurn();
        if (!was) await this.#deliveries.wait(LOOK_MS);
      } catch (error) {
        log.error({ err: error }, 'webhooks cannot be worked off; trying again');
        await this.#deliveries.wait(TROUBLE_MS);
      }
    }
  }

  /** The app was removed: nobody reads what its runs would say. Its turns are stopped already. */
  #revoked(): void {
    // After the commit that says so.
    setImmediate(this.#options.onRevoked);
  }
}

export const createLinearService = (options: LinearServiceOptions): LinearService =>
  new Service(options);
