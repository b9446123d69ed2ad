/**
 * The daemon's end of an attempt's control socket: heartbeats and live figures in,
 * aborts out. Losing it costs nothing; it connects again as long as it is wanted.
 */

import type { Socket } from 'node:net';
import { createConnection } from 'node:net';
import type { ControlToWrapper, LiveState } from '../domain/attempt-files.ts';
import { CONTROL_VERSION } from '../domain/attempt-files.ts';
import { type ControlMessage, parseControl } from './control-messages.ts';

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
/** A wrapper's lines are short; more without a line end is not our protocol. */
const LINE_MAX = 64 * 1024;

export interface ControlHandlers {
  onHeartbeat(message: Extract<ControlMessage, { type: 'heartbeat' }>): void;
  onProblem(reason: string): void;
}

export interface ControlLink {
  readonly live: LiveState | null;
  /** Somebody has the socket open, though perhaps says nothing. */
  readonly connected: boolean;
  /** Asks the wrapper to end its runner; false when it cannot be told right now. */
  abort(reason: 'cancel' | 'interrupt' | 'suspend' | 'fail', graceMs: number, id: string): boolean;
  /** Hints that a decision lies in its directory; lost when it cannot be told right now. */
  look(id: string): void;
  /** True when the wrapper answers within `ms`. */
  ping(id: string, ms: number): Promise<boolean>;
  close(): void;
}

/** See {@link openControlLink}. */
class SocketLink implements ControlLink {
  readonly #path: string;
  readonly #nonce: string;
  readonly #handlers: ControlHandlers;
  readonly #pings = new Map<string, (answered: boolean) => void>();
  #socket: Socket | null = null;
  #timer: NodeJS.Timeout | null = null;
  #delay = RETRY_FIRST_MS;
  #greeted = false;
  /** The lower of both sides' versions, once greeted. */
  #version = CONTROL_VERSION;
  #closed = false;
  live: LiveState | null = null;

  constructor(socketPath: string, nonce: string, handlers: ControlHandlers) {
    this.#path = socketPath;
    this.#nonce = nonce;
    this.#handlers = handlers;
    this.#connect();
  }

  get connected(): boolean {
    return this.#socket?.readyState === 'open';
  }

  abort(reason: 'cancel' | 'interrupt' | 'suspend' | 'fail', graceMs: number, id: string): boolean {
    return this.#send({ v: this.#version, type: 'abort', id, reason, graceMs });
  }

  look(id: string): void {
    this.#send({ v: this.#version, type: 'look', id });
  }

  async ping(id: string, ms: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#pings.set(id, resolve);
    const late = setTimeout(() => resolve(false), ms);
    if (!this.#send({ v: this.#version, type: 'ping', id })) resolve(false);
    try {
      return await promise;
    } finally {
      clearTimeout(late);
      this.#pings.delete(id);
    }
  }

  close(): void {
    this.#closed = true;
    for (const settle of this.#pings.values()) settle(false);
    if (this.#timer) clearTimeout(this.#timer);
    this.#socket?.destroy();
  }

  #send(message: ControlToWrapper): boolean {
    if (!this.#socket || !this.#greeted) return false;
    this.#socket.write(`${JSON.stringify(message)}\n`);
    return true;
  }

  #connect(): void {
    this.#timer = null;
    this.#greeted = false;
    let pending = '';
    const socket = createConnection(this.#path);
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => {
      pending += text;
      const lines = pending.split('\n');
      pending = lines.pop() ?? '';
      if (pending.length > LINE_MAX) socket.destroy(new Error('a line without end'));
      for (const line of lines) this.#receive(line);
    });
    socket.on('error', () => undefined); // 'close' follows and tries again.
    socket.on('close', () => this.#reconnect());
  }

  #reconnect(): void {
    this.#socket = null;
    if (this.#closed) return;
    this.#timer = setTimeout(() => this.#connect(), this.#delay);
    this.#delay = Math.min(this.#delay * 2, RETRY_MAX_MS);
  }

  /** A handler that fails (a full disk under the store) must cost a heartbeat, not the daemon. */
  #receive(text: string): void {
    try {
      const message = parseControl(text);
      if (message) this.#take(message);
      else this.#handlers.onProblem('a line that is not the control protocol');
    } catch (error) {
      this.#handlers.onProblem(`a heartbeat could not be kept: ${(error as Error).message}`);
    }
  }

  #take(message: ControlMessage): void {
    if (message.type === 'hello') {
      this.#version = Math.min(CONTROL_VERSION, message.v);
      this.#greeted = message.nonce === this.#nonce;
      if (!this.#greeted) this.#socket?.destroy(new Error('greeted with another nonce'));
      this.#delay = RETRY_FIRST_MS;
    } else if (message.type === 'heartbeat' && this.#greeted) {
      this.live = message.live;
      this.#handlers.onHeartbeat(message);
    } else if (message.type === 'done') {
      this.#pings.get(message.id)?.(true);
    } else if (message.type === 'error') {
      this.#handlers.onProblem(message.message);
    }
  }
}

/** Opens the link of the attempt with this nonce; a socket that greets with another is not listened to. */
export function openControlLink(
  socketPath: string,
  nonce: string,
  handlers: ControlHandlers,
): ControlLink {
  return new SocketLink(socketPath, nonce, handlers);
}
