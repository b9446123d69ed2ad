/**
 * The way in for Linear's webhooks: checked, stored, and only then answered. Works on
 * whatever store is open, so that it is there before recovery and until the very end.
 */
import type { Logger } from 'pino';
import { OutliveError } from '../domain/errors.ts';
import { type Entropy, timestamp, uuidv7 } from '../domain/ids.ts';
import type { NewDelivery } from '../store/linear-deliveries.ts';
import type { Store } from '../store/store.ts';
import { createGatherer } from '../supervisor/gather.ts';
import { contentKey, rawKey } from './keys.ts';
import { parseBody, readEnvelope } from './payloads.ts';
import { FUTURE_MS, isSigned, isTimely, looksSigned, PAST_MS } from './signature.ts';

/** Of Linear's headers; longer is none of its ids. */
const DELIVERY_ID_MAX = 256;
/** Refusals are told at most this often, milliseconds: anybody may knock. */
const TOLD_EVERY_MS = 60_000;

export interface IngressOptions {
  /** The store that is open now; null while there is none. */
  readonly store: () => Store | null;
  /** The app's webhook signing secret. */
  readonly secret: string;
  /** Deliveries of any other organization are kept and ignored; null: all are ours. */
  readonly organizationId: string | null;
  readonly entropy: Entropy;
  readonly log: Logger;
  /** There is a new one, and it is durable: a hint. */
  readonly onDelivery: () => void;
}

export interface DeliveryHeaders {
  readonly signature: unknown;
  readonly deliveryId: unknown;
}

export interface Ingress {
  /** What can be said before the body is there. @throws OutliveError `webhook_refused`. */
  precheck(headers: DeliveryHeaders): void;
  /**
   * Resolves once it is durable, as a new row or as a repeat of one.
   * @throws OutliveError `webhook_refused` with nothing stored; `store_unavailable`.
   */
  receive(raw: Buffer, headers: DeliveryHeaders): Promise<void>;
}

type Read = Pick<
  NewDelivery,
  | 'contentKey'
  | 'type'
  | 'action'
  | 'organizationId'
  | 'sessionId'
  | 'signedAt'
  | 'state'
  | 'detail'
>;

/** What is no JSON object: signed, so it is kept; nobody can say more. */
const unreadable = (raw: Buffer): Read => ({
  contentKey: rawKey(raw),
  type: 'unknown',
  action: '',
  organizationId: null,
  sessionId: null,
  signedAt: null,
  state: 'ignored',
  detail: 'no JSON object',
});

class WebhookLedger implements Ingress {
  readonly #options: IngressOptions;
  readonly #commitSoon;
  /** Milliseconds of the last id: those of one millisecond would be in any order. */
  #lastMs = 0;
  #refused = 0;
  #toldAt = -Infinity;

  constructor(options: IngressOptions) {
    this.#options = options;
    this.#commitSoon = createGatherer<Store>(
      {
        commit: (work) => {
          const store = options.store();
          if (store === null) throw new OutliveError('starting', 'No store is open.');
          return store.write(() => work(store));
        },
      },
      options.entropy,
    );
  }

  precheck({ signature }: DeliveryHeaders): void {
    if (!looksSigned(signature)) throw this.#refusal('Linear-Signature is missing or malformed.');
  }

  async receive(raw: Buffer, headers: DeliveryHeaders): Promise<void> {
    const { secret, log, onDelivery } = this.#options;
    if (!isSigned(secret, raw, headers.signature)) {
      throw this.#refusal('Linear-Signature is not that of this body.');
    }
    const row = this.#row(raw, headers);
    const isNew = await this.#store(row);
    const { id, type, action, state } = row;
    log.debug({ delivery: id, type, action, state, isNew }, 'webhook');
    if (isNew && state === 'new') onDelivery();
  }

  #row(raw: Buffer, { deliveryId }: DeliveryHeaders): NewDelivery {
    const { entropy } = this.#options;
    this.#lastMs = Math.max(entropy.now(), this.#lastMs + 1);
    return {
      ...this.#read(raw),
      id: uuidv7({ now: () => this.#lastMs, random: entropy.random }),
      deliveryId: typeof deliveryId === 'string' ? deliveryId.slice(0, DELIVERY_ID_MAX) : null,
      source: 'webhook',
      receivedAt: timestamp(entropy),
      body: raw,
    };
  }

  #read(raw: Buffer): Read {
    const body = parseBody(raw);
    if (body === null) return unreadable(raw);
    const { type, action, webhookTimestamp, event, sessionId } = readEnvelope(body);
    if (webhookTimestamp === null) throw this.#refusal('webhookTimestamp is missing.');
    if (!isTimely(webhookTimestamp, this.#options.entropy.now())) {
      throw this.#refusal(
        `webhookTimestamp is more than ${PAST_MS / 60_000} min past or ${FUTURE_MS / 1_000} s ahead.`,
      );
    }
    const { organizationId: ours } = this.#options;
    const { organizationId } = event;
    const isForeign = ours !== null && organizationId !== null && organizationId !== ours;
    return {
      contentKey: contentKey(event, body, raw),
      type: type || 'unknown',
      action,
      organizationId,
      sessionId,
      signedAt: new Date(webhookTimestamp).toISOString(),
      ...(isForeign
        ? { state: 'ignored', detail: 'of another organization' }
        : { state: 'new', detail: null }),
    };
  }

  async #store(row: NewDelivery): Promise<boolean> {
    try {
      return await this.#commitSoon((store) => store.linearDeliveries.record(row));
    } catch (error) {
      const code = error instanceof OutliveError ? error.code : 'internal';
      this.#options.log.error({ code, type: row.type }, 'a webhook could not be stored');
      throw new OutliveError(
        'store_unavailable',
        `The delivery is not stored (${code}). Send it again later.`,
        { cause: error },
      );
    }
  }

  #refusal(detail: string): OutliveError {
    const now = this.#options.entropy.monotonic();
    this.#refused += 1;
    if (now - this.#toldAt >= TOLD_EVERY_MS) {
      this.#options.log.warn({ detail, refused: this.#refused }, 'webhooks were refused');
      this.#toldAt = now;
      this.#refused = 0;
    }
    return new OutliveError('webhook_refused', detail);
  }
}

/** The way in of one daemon. */
export const createIngress = (options: IngressOptions): Ingress => new WebhookLedger(options);
