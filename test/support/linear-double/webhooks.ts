/**
 * Sends webhooks as Linear does: signed bytes, 200 within 5 s or it counts as failed. Nothing is
 * sent by itself; a test makes a delivery, and sends it when and as often as it likes.
 */
import { createHmac, randomUUID } from 'node:crypto';
import { type Envelope, Samples } from './samples.ts';
import type { Session, World } from './world.ts';

/** Linear waits no longer for its 200. */
const ANSWER_MS = 5_000;
/** After a failure, counted from the first try. */
export const RETRY_MS = [60_000, 3_600_000, 21_600_000];
/** When the same delivery was seen again although it had been answered, and the retries. */
export const REPEAT_MS = [1_100, ...RETRY_MS];

/** A body with its time in it, and what goes around it. */
export interface Delivery {
  /** `Linear-Delivery`. */
  readonly id: string;
  readonly event: string;
  readonly body: Buffer;
  /** `webhookTimestamp`, ms. */
  readonly timestamp: number;
}

export interface Outcome {
  /** HTTP status; 0 when there was no answer in time. */
  readonly status: number;
  /** 200, and in time. */
  readonly ok: boolean;
  readonly body: string;
  /** Why there was no answer; null when there was. */
  readonly error: string | null;
}

export interface SendOptions {
  /** Other headers, to be told from genuine ones; undefined leaves one out. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Signs with another secret. */
  readonly secret?: string;
  readonly deadlineMs?: number;
}

/** How a delivery comes again: nobody outside Linear knows, so a receiver must stand both. */
export type Again = 'identical' | 'restamped';

export class WebhookSender {
  /** Where deliveries go. */
  url = '';
  /** Every try and what came of it, oldest first. */
  readonly tries: { readonly delivery: Delivery; readonly outcome: Outcome }[] = [];
  readonly samples: Samples;
  readonly secret: string;
  readonly #world: World;

  constructor(world: World, clientId: string, secret: string) {
    this.#world = world;
    this.secret = secret;
    this.samples = new Samples(world, clientId, randomUUID());
  }

  created(session: Session): Delivery {
    return this.deliver(this.samples.created(session));
  }

  /** A person writes in the session. */
  prompted(session: Session, body: string): Delivery {
    return this.deliver(this.samples.prompted(session, this.#world.prompt(session, body)));
  }

  /** A person presses stop. */
  stop(session: Session, body = 'Stop'): Delivery {
    return this.deliver(this.samples.prompted(session, this.#world.prompt(session, body, 'stop')));
  }

  unknownType(): Delivery {
    return this.deliver(this.samples.unknownType());
  }

  unknownAction(session: Session): Delivery {
    return this.deliver(this.samples.unknownAction(session));
  }

  permissionChange(removed: readonly string[], added: readonly string[] = []): Delivery {
    return this.deliver(this.samples.permissionChange(removed, added));
  }

  revoked(): Delivery {
    return this.deliver(this.samples.revoked());
  }

  /** Any body; the time is put in here. */
  deliver(envelope: Envelope): Delivery {
    const timestamp = this.#world.clock.now();
    const body = Buffer.from(JSON.stringify({ ...envelope, webhookTimestamp: timestamp }));
    return { id: randomUUID(), event: envelope.type, body, timestamp };
  }

  /** The same content, sent anew: another time and another delivery id. */
  restamped(delivery: Delivery): Delivery {
    const envelope = JSON.parse(delivery.body.toString('utf8')) as Envelope;
    return this.deliver(envelope);
  }

  /** One try. Never rejects. */
  async send(delivery: Delivery, options: SendOptions = {}): Promise<Outcome> {
    const outcome = await this.#post(delivery, options);
    this.tries.push({ delivery, outcome });
    return outcome;
  }

  /** One try now, and after a failure the three that Linear makes, as the clock reaches them. */
  async sendWithRetries(
    delivery: Delivery,
    again: Again = 'identical',
    options: SendOptions = {},
  ): Promise<Outcome> {
    const outcome = await this.send(delivery, options);
    let isDone = outcome.ok;
    for (const ms of RETRY_MS) {
      this.#world.clock.in(ms, async () => {
        if (isDone) return;
        isDone = (await this.send(this.#again(delivery, again), options)).ok;
      });
    }
    return outcome;
  }

  /** The delivery comes again at these times from now, whatever it was answered. */
  repeat(delivery: Delivery, again: Again, after: readonly number[] = REPEAT_MS): void {
    for (const ms of after) {
      this.#world.clock.in(ms, () => this.send(this.#again(delivery, again)));
    }
  }

  /** The headers that Linear sends with it. */
  headers(delivery: Delivery, secret = this.secret): Record<string, string> {
    return {
      'content-type': 'application/json; charset=utf-8',
      'user-agent': 'Linear-Webhook',
      'linear-delivery': delivery.id,
      'linear-event': delivery.event,
      'linear-timestamp': String(delivery.timestamp),
      'linear-signature': createHmac('sha256', secret).update(delivery.body).digest('hex'),
    };
  }

  #again(delivery: Delivery, again: Again): Delivery {
    return again === 'identical' ? delivery : this.restamped(delivery);
  }

  async #post(delivery: Delivery, options: SendOptions): Promise<Outcome> {
    const all = { ...this.headers(delivery, options.secret), ...options.headers };
    const headers = Object.fromEntries(
      Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== undefined),
    );
    try {
      const answer = await fetch(this.url, {
        method: 'POST',
        headers,
        body: new Uint8Array(delivery.body),
        redirect: 'manual',
        signal: AbortSignal.timeout(options.deadlineMs ?? ANSWER_MS),
      });
      const body = await answer.text();
      return { status: answer.status, ok: answer.status === 200, body, error: null };
    } catch (error) {
      const cause = error instanceof Error ? (error.cause ?? error) : error;
      return { status: 0, ok: false, body: '', error: String(cause) };
    }
  }
}
