/**
 * What works off the ledger: one delivery after the other, oldest first, each settled in the
 * transaction that holds its effects. Who dies between the two finds it new again.
 */
import { OutliveError } from '../domain/errors.ts';
import type { DeliveryRow, DeliveryState, LinearDeliveries } from '../store/linear-deliveries.ts';
import { type LinearEvent, parseBody, readEnvelope } from './payloads.ts';

/** A delivery with what it says. */
export interface Delivery<Event extends LinearEvent = LinearEvent> {
  readonly row: Omit<DeliveryRow, 'body'>;
  readonly event: Event;
}

/** What became of it. A reason is shown to people: no text of the body belongs in there. */
export interface Settled {
  readonly state: Exclude<DeliveryState, 'new'>;
  readonly detail: string | null;
}

export type EventKind = LinearEvent['kind'];
type EventOf<Kind extends EventKind> = Extract<LinearEvent, { kind: Kind }>;

/**
 * Does in `transaction` what the event asks for, and says what became of it. Must not wait for
 * anything: what is told to Linear or to systemd comes after, from what is stored here.
 */
export type DeliveryHandler<Transaction, Kind extends EventKind = EventKind> = (
  delivery: Delivery<EventOf<Kind>>,
  transaction: Transaction,
) => Settled;

export interface DeliveryHandlers<Transaction> {
  /** At most one a kind. */
  on<Kind extends EventKind>(kind: Kind, handler: DeliveryHandler<Transaction, Kind>): void;
  /** The handler of an event; without one it is ignored, and the reason says so. */
  handle(delivery: Delivery, transaction: Transaction): Settled;
}

const ignored = ({ event, row }: Delivery): Settled => ({
  state: 'ignored',
  detail: event.kind === 'unknown' ? event.why : `nothing is done for ${row.type} ${row.action}`,
});

/** An empty registry: everything is ignored. */
export function createHandlers<Transaction>(): DeliveryHandlers<Transaction> {
  const handlers = new Map<EventKind, (delivery: Delivery<never>, t: Transaction) => Settled>();
  return {
    on: (kind, handler) => {
      if (handlers.has(kind)) throw new Error(`two handlers for ${kind}`);
      handlers.set(kind, handler);
    },
    handle: (delivery, transaction) => {
      const handler = handlers.get(delivery.event.kind);
      // By its kind it is the event that this handler was registered for.
      return handler ? handler(delivery as Delivery<never>, transaction) : ignored(delivery);
    },
  };
}

export interface Deliveries {
  /** The oldest that is new and was not taken yet, by this object; null when there is none. */
  takeNext(): Delivery | null;
  /**
   * What became of it; in the transaction of its effects. @returns false when it was settled
   * before: then this transaction must not go on.
   */
  done(delivery: Delivery, settled: Settled, at: string): boolean;
  /** It is new as before, and the next one that is taken: what kept it from its end may pass. */
  giveBack(delivery: Delivery): void;
}

/** A row of the ledger with its event, read from the bytes that were signed. */
function read({ body, ...row }: DeliveryRow): Delivery {
  const fields = parseBody(body);
  const event = fields && readEnvelope(fields).event;
  const origin = { organizationId: null, oauthClientId: null, appUserId: null, createdAt: null };
  return { row, event: event ?? { kind: 'unknown', ...origin, why: 'no JSON object' } };
}

/** Takes from the ledger. One of it a daemon: what is taken is remembered here only. */
export function createDeliveries(ledger: Pick<LinearDeliveries, 'next' | 'settle'>): Deliveries {
  const taken = new Set<string>();
  return {
    takeNext: () => {
      let row = ledger.next();
      while (row !== null && taken.has(row.id)) row = ledger.next(row.id);
      if (row === null) return null;
      taken.add(row.id);
      return read(row);
    },
    done: ({ row }, { state, detail }, at) => {
      const isFirst = ledger.settle(row.id, state, detail, at);
      taken.delete(row.id);
      return isFirst;
    },
    giveBack: ({ row }) => {
      taken.delete(row.id);
    },
  };
}

export interface WorkOffOptions<Transaction> {
  readonly deliveries: Deliveries;
  readonly handlers: DeliveryHandlers<Transaction>;
  /** One transaction, durable when it returns; the writer's. */
  readonly commit: <Result>(work: (transaction: Transaction) => Result) => Result;
  /** ISO 8601. */
  readonly now: () => string;
  /** A handler's own mistake; told without the body. */
  readonly report: (delivery: Delivery, error: unknown) => void;
}

/** Thrown inside a transaction to undo it: somebody settled the delivery meanwhile. */
class SettledBefore extends Error {}

function settleOne<Transaction>(
  delivery: Delivery,
  { deliveries, handlers, commit, now, report }: WorkOffOptions<Transaction>,
): void {
  try {
    commit((transaction) => {
      const settled = handlers.handle(delivery, transaction);
      if (!deliveries.done(delivery, settled, now())) throw new SettledBefore();
    });
  } catch (error) {
    if (error instanceof SettledBefore) return;
    // The store's trouble is not the delivery's: it stays new.
    if (error instanceof OutliveError && error.status >= 500) throw error;
    report(delivery, error);
    const code = error instanceof OutliveError ? error.code : 'internal';
    const settled: Settled = { state: 'failed', detail: `its handler failed: ${code}` };
    commit(() => deliveries.done(delivery, settled, now()));
  }
}

/**
 * Works off one delivery: its handler and its end in one transaction. One whose handler throws
 * fails and holds nobody up.
 * @returns false when there was none.
 * @throws OutliveError of the store; the delivery is new as before.
 */
export function workOffNext<Transaction>(options: WorkOffOptions<Transaction>): boolean {
  const delivery = options.deliveries.takeNext();
  if (delivery === null) return false;
  try {
    settleOne(delivery, options);
    return true;
  } catch (error) {
    options.deliveries.giveBack(delivery);
    throw error;
  }
}
