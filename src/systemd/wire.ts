/**
 * One connection to the user bus, from its socket to its end. dbus-next is used for
 * the protocol only (messages in, messages out); what it lacks is here, each measured
 * on 0.10.2: a deadline for every call, the end of pending calls when the socket dies
 * (it leaves them unsettled for ever), and word of that death.
 */
import { Socket } from 'node:net';
import { Message, type MessageBus, MessageFlag, MessageType, sessionBus } from 'dbus-next';
import { BusError, replyError } from './bus-error.ts';
import { InFlight } from './in-flight.ts';
import type { Timers } from './timers.ts';

/** A method call. The signature's values are dbus-next's: bigint for 64 bits, Variant for v. */
export interface BusCall {
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly signature?: string;
  readonly body?: readonly unknown[];
}

/** A signal as it came. Anybody on the bus may send one: a hint, never a fact. */
export interface BusSignal {
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly body: readonly unknown[];
}

export interface WireOptions {
  readonly socket: string;
  readonly connectDeadlineMs: number;
  /** Calls under way at once; the rest queue, on their own deadline. */
  readonly maxInFlight: number;
  readonly timers: Timers;
  readonly onSignal: (wire: Wire, signal: BusSignal) => void;
  /** Once, after an open wire has died, for whatever reason. */
  readonly onClose: (wire: Wire, reason: string) => void;
}

/** dbus-next tells nobody that its socket closed, so its socket is taken out of it. */
function socketOf(bus: MessageBus): Socket {
  const connection: unknown = Reflect.get(bus, '_connection');
  const stream: unknown =
    typeof connection === 'object' && connection !== null
      ? Reflect.get(connection, 'stream')
      : undefined;
  if (stream instanceof Socket) return stream;
  throw new BusError('not_sent', 'this dbus-next hides its socket; 0.10.2 does not');
}

export class Wire {
  readonly #bus: MessageBus;
  readonly #socket: Socket;
  readonly #options: WireOptions;
  readonly #calls: InFlight;
  readonly #pending = new Set<(error: BusError) => void>();
  #open = false;
  #reason: string | null = null;

  private constructor(options: WireOptions) {
    this.#options = options;
    this.#calls = new InFlight(options.maxInFlight);
    // `unix:socket=` is dbus-next's own word for "node:net, not the native usocket".
    this.#bus = sessionBus({
      busAddress: `unix:socket=${options.socket}`,
      authMethods: ['EXTERNAL'],
    });
    this.#socket = socketOf(this.#bus);
    // Without a listener an `error` ends the process. The socket's `close` follows.
    this.#bus.on('error', (error: unknown) => this.#die(describe(error)));
    this.#bus.on('message', (message: Message) => this.#onMessage(message));
  }

  /** Connects and says Hello. @throws BusError `not_sent` at the deadline or when refused. */
  static open(options: WireOptions): Promise<Wire> {
    return new Promise((resolve, reject) => {
      const wire = new Wire(options);
      const cancel = options.timers.after(options.connectDeadlineMs, () =>
        wire.#die(`no answer within ${options.connectDeadlineMs} ms`),
      );
      wire.#bus.on('connect', () => {
        cancel();
        wire.#open = true;
        resolve(wire);
      });
      wire.#socket.on('close', () => {
        cancel();
        wire.#end();
        reject(new BusError('not_sent', `${options.socket}: ${wire.reason}`));
      });
    });
  }

  /**
   * Sends and waits for the answer's values.
   * @throws BusError, see its `failure`.
   */
  call(request: BusCall, deadlineMs: number): Promise<readonly unknown[]> {
    return new Promise((resolve, reject) => {
      const what = `${request.interface}.${request.member}`;
      let sent = false;
      const settle = (outcome: () => void): void => {
        if (!this.#pending.delete(fail)) return;
        cancel();
        if (!withdraw()) this.#calls.leave();
        outcome();
      };
      const fail = (error: BusError): void => settle(() => reject(error));
      const cancel = this.#options.timers.after(deadlineMs, () =>
        fail(
          new BusError(sent ? 'unanswered' : 'not_sent', `${what}: no answer in ${deadlineMs} ms`),
        ),
      );
      this.#pending.add(fail);
      const withdraw = this.#calls.enter(() => {
        if (!this.#open || !this.#pending.has(fail)) return;
        sent = true;
        this.#send(request).then((body) => settle(() => resolve(body)), fail);
      });
      if (!this.#open) fail(new BusError('not_sent', `${what}: ${this.reason}`));
    });
  }

  /** Why it ended. */
  get reason(): string {
    return this.#reason ?? 'the bus closed the connection';
  }

  /** Ends the connection now; pending calls are rejected. */
  close(): void {
    this.#die('closed by outlive');
  }

  async #send(request: BusCall): Promise<readonly unknown[]> {
    try {
      const { body = [], ...head } = request;
      // Asking a missing manager must say so at once, not make dbus-daemon try to start one.
      const flags = MessageFlag.NO_AUTO_START;
      const reply = await this.#bus.call(new Message({ ...head, body: [...body], flags }));
      return reply?.body ?? [];
    } catch (error) {
      throw toBusError(error);
    }
  }

  #onMessage(message: Message): void {
    if (message.type === MessageType.ERROR && !this.#open) {
      // The bus refused Hello (its limit of connections). dbus-next would turn that into
      // an unhandled rejection; throwing here makes it drop the reply instead.
      setImmediate(() => this.#die(describe(message.body[0] ?? message.errorName)));
      throw new Error('Hello was refused');
    }
    if (message.type !== MessageType.SIGNAL) return;
    const { path, interface: iface, member, body } = message;
    try {
      this.#options.onSignal(this, { path, interface: iface, member, body });
    } catch {
      // Whoever listens reports its own faults; letting one out would cost a reply.
    }
  }

  #die(reason: string): void {
    this.#reason ??= reason; // The first one is the cause.
    this.#socket.destroy();
  }

  #end(): void {
    const wasOpen = this.#open;
    this.#open = false;
    for (const fail of [...this.#pending]) fail(new BusError('unanswered', this.reason));
    if (wasOpen) this.#options.onClose(this, this.reason);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function toBusError(error: unknown): BusError {
  const type: unknown = error instanceof Error ? Reflect.get(error, 'type') : undefined;
  if (typeof type === 'string') return replyError(type, describe(error));
  // Thrown before anything was written: a closed stream, or values that do not fit the signature.
  return new BusError('not_sent', describe(error));
}
