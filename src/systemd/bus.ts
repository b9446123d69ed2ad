/**
 * The user bus for as long as the daemon lives: connects, subscribes to the manager,
 * and does both again whenever the socket dies or the manager comes back under a new
 * name (a re-exec, a restart). After each time everything has to be read again, for
 * signals were missed meanwhile: that is {@link Bus.onUp}.
 *
 * Two match rules per connection, added once and never removed: dbus-next forgets to
 * remove rules that it adds itself (measured on 0.10.2).
 */
import { OutliveError } from '../domain/errors.ts';
import type { Entropy } from '../domain/ids.ts';
import { backoffMs } from './backoff.ts';
import { busSocket } from './bus-address.ts';
import { BusError, isAbsent, refusedAs } from './bus-error.ts';
import { BUS_DRIVER, SYSTEMD } from './bus-names.ts';
import type { Timers } from './timers.ts';
import { type BusCall, type BusSignal, Wire } from './wire.ts';

const MATCH_RULES = [
  `type='signal',sender='${SYSTEMD.destination}',path_namespace='${SYSTEMD.path}'`,
  `type='signal',sender='${BUS_DRIVER.destination}',member='NameOwnerChanged',arg0='${SYSTEMD.destination}'`,
];

export interface BusOptions {
  /** DBUS_SESSION_BUS_ADDRESS, or `unix:path=$XDG_RUNTIME_DIR/bus`. */
  readonly address: string;
  /** For connecting, and for each call of the set-up. */
  readonly connectDeadlineMs: number;
  readonly maxInFlight: number;
  readonly timers: Timers;
  readonly entropy: Pick<Entropy, 'random'>;
  /** Told of what nobody waits for: lost connections, failed tries, throwing listeners. */
  readonly report: (problem: string) => void;
}

export class Bus {
  readonly #options: BusOptions;
  readonly #signalListeners = new Set<(signal: BusSignal) => void>();
  readonly #upListeners = new Set<() => void>();
  #wire: Wire | null = null;
  #ready = false;
  #failures = 0;
  /** While true, whoever runs the set-up deals with its failure. */
  #settingUp = false;
  #connecting: Promise<void> | null = null;
  /** The first connection succeeded: from now on a lost one is sought again. */
  #persistent = false;
  #closed = false;
  #cancelRetry: () => void = () => {};

  constructor(options: BusOptions) {
    this.#options = options;
  }

  /** Connected and subscribed to a manager that answered. */
  get ready(): boolean {
    return this.#ready;
  }

  /**
   * The first connection; does nothing when there is one. Later ones come by themselves.
   * @throws OutliveError `no_user_manager` when the bus or the manager does not answer.
   */
  async connect(): Promise<void> {
    if (this.#persistent) return;
    this.#connecting ??= this.#first().finally(() => {
      this.#connecting = null;
    });
    await this.#connecting;
  }

  async #first(): Promise<void> {
    try {
      await this.#setUp();
      this.#persistent = true;
    } catch (error) {
      if (error instanceof OutliveError) throw error;
      throw new OutliveError(
        'no_user_manager',
        `The systemd user manager cannot be reached: ${describe(error)}.`,
        { cause: error },
      );
    }
  }

  /**
   * Calls a method; resolves to the values of the answer.
   * @throws BusError; `not_sent` at once while there is no connection.
   */
  async call(request: BusCall, deadlineMs: number): Promise<readonly unknown[]> {
    if (this.#wire === null) throw new BusError('not_sent', 'the bus is not connected');
    return await this.#wire.call(request, deadlineMs);
  }

  /** Every signal of the manager and its units. Returns the unsubscribe. */
  onSignal(listener: (signal: BusSignal) => void): () => void {
    this.#signalListeners.add(listener);
    return () => this.#signalListeners.delete(listener);
  }

  /** Called after each set-up: signals were missed, references are gone. Returns the unsubscribe. */
  onUp(listener: () => void): () => void {
    this.#upListeners.add(listener);
    return () => this.#upListeners.delete(listener);
  }

  /** Ends the connection for good. */
  close(): void {
    this.#closed = true;
    this.#cancelRetry();
    this.#wire?.close();
    this.#down();
  }

  async #setUp(): Promise<void> {
    this.#settingUp = true;
    try {
      const wire = await this.#open();
      try {
        for (const rule of MATCH_RULES) await this.#addMatch(wire, rule);
        await this.#subscribe(wire).catch((error: unknown) => this.#awaitManager(error));
      } catch (error) {
        this.#down(); // First, so that the close that follows starts no second retry.
        wire.close();
        throw error;
      }
    } finally {
      this.#settingUp = false;
    }
  }

  /**
   * A bus without a manager may be one second old: the manager starts it and joins it a
   * moment later (seen at boot on 252). Its arrival is subscribed to as any return of it.
   */
  async #awaitManager(error: unknown): Promise<void> {
    if (!isAbsent(error)) throw error;
    await new Promise<void>((resolve, reject) => {
      const cancel = this.#options.timers.after(this.#options.connectDeadlineMs, () => {
        stop();
        reject(error);
      });
      const stop = this.onUp(() => {
        cancel();
        stop();
        resolve();
      });
    });
  }

  async #open(): Promise<Wire> {
    const { address, connectDeadlineMs, maxInFlight, timers } = this.#options;
    const wire = await Wire.open({
      socket: busSocket(address),
      connectDeadlineMs,
      maxInFlight,
      timers,
      onSignal: (from, signal) => this.#onSignal(from, signal),
      onClose: (from, reason) => this.#onClose(from, reason),
    });
    if (this.#closed) {
      wire.close();
      throw new BusError('not_sent', 'closed by outlive');
    }
    this.#wire = wire;
    return wire;
  }

  async #addMatch(wire: Wire, rule: string): Promise<void> {
    const request = { ...BUS_DRIVER, member: 'AddMatch', signature: 's', body: [rule] };
    await wire.call(request, this.#options.connectDeadlineMs);
  }

  /** Asks the manager for its signals; it sends none to clients that did not (man org.freedesktop.systemd1). */
  async #subscribe(wire: Wire): Promise<void> {
    const request = {
      ...SYSTEMD,
      interface: 'org.freedesktop.systemd1.Manager',
      member: 'Subscribe',
    };
    try {
      await wire.call(request, this.#options.connectDeadlineMs);
    } catch (error) {
      if (!refusedAs(error, 'AlreadySubscribed')) throw error;
    }
    if (this.#wire !== wire) throw new BusError('unanswered', 'the connection was lost meanwhile');
    this.#ready = true;
    this.#failures = 0;
    for (const listener of [...this.#upListeners]) this.#guard(listener);
  }

  #onSignal(wire: Wire, signal: BusSignal): void {
    if (signal.member === 'NameOwnerChanged' && signal.interface === BUS_DRIVER.interface) {
      this.#onOwner(wire, signal.body[2] !== '');
      return;
    }
    for (const listener of [...this.#signalListeners]) this.#guard(() => listener(signal));
  }

  #onOwner(wire: Wire, owned: boolean): void {
    if (this.#wire !== wire) return;
    this.#ready = false;
    if (!owned) {
      this.#options.report('the user manager left the bus');
      return;
    }
    this.#subscribe(wire).catch((error: unknown) => {
      this.#options.report(`subscribing to the returned user manager failed: ${describe(error)}`);
      wire.close();
    });
  }

  #onClose(wire: Wire, reason: string): void {
    if (this.#wire !== wire) return;
    this.#down();
    if (this.#closed || !this.#persistent || this.#settingUp) return;
    this.#options.report(`the connection to the user bus was lost: ${reason}`);
    this.#retry();
  }

  #down(): void {
    this.#wire = null;
    this.#ready = false;
  }

  #retry(): void {
    const { timers, entropy, report } = this.#options;
    this.#cancelRetry();
    this.#cancelRetry = timers.after(backoffMs(this.#failures++, entropy), () => {
      this.#setUp().catch((error: unknown) => {
        if (this.#closed) return;
        report(`the user bus cannot be reached yet: ${describe(error)}`);
        this.#retry();
      });
    });
  }

  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#options.report(`a listener failed: ${describe(error)}`);
    }
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
