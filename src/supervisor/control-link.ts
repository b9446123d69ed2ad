/**
 * The daemon's end of an attempt's control socket: heartbeats and live figures in,
 * aborts out. Losing it costs nothing; it connects again as long as it is wanted.
 */

import type { Socket } from 'node:net';
import { createConnection } from 'node:net';
import type { ControlFromWrapper, ControlToWrapper, LiveState } from '../domain/attempt-files.ts';
import { CONTROL_VERSION } from '../domain/attempt-files.ts';

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
/** A wrapper's lines are short; more without a line end is not our protocol. */
const LINE_MAX = 64 * 1024;

export interface ControlHandlers {
  onHeartbeat(message: Extract<ControlFromWrapper, { type: 'heartbeat' }>): void;
  onProblem(reason: string): void;
}

export interface ControlLink {
  readonly live: LiveState | null;
  /** Asks the wrapper to end its runner; false when it cannot be told right now. */
  abort(reason: 'cancel' | 'interrupt' | 'suspend' | 'fail', graceMs: number, id: string): boolean;
  /** True when the wrapper answers within `ms`. */
  ping(id: string, ms: number): Promise<boolean>;
  close(): void;
}

function parseMessage(text: string): ControlFromWrapper | null {
  try {
    const value = JSON.parse(text) as ControlFromWrapper;
    return value.v === CONTROL_VERSION && typeof value.type === 'string' ? value : null;
  } catch {
    return null;
  }
}

/** Opens the link of the attempt with this nonce; a socket that greets with another is not listened to. */
export function openControlLink(
  socketPath: string,
  nonce: string,
  handlers: ControlHandlers,
): ControlLink {
  let socket: Socket | null = null;
  let timer: NodeJS.Timeout | null = null;
  let live: LiveState | null = null;
  let delay = RETRY_FIRST_MS;
  let greeted = false;
  let closed = false;
  const pings = new Map<string, (answered: boolean) => void>();

  const receive = (text: string): void => {
    const message = parseMessage(text);
    if (!message) {
      handlers.onProblem('a line that is not the control protocol');
    } else if (message.type === 'hello') {
      greeted = message.nonce === nonce;
      if (!greeted) socket?.destroy(new Error('greeted with another nonce'));
      delay = RETRY_FIRST_MS;
    } else if (message.type === 'heartbeat' && greeted) {
      live = message.live;
      handlers.onHeartbeat(message);
    } else if (message.type === 'done') {
      pings.get(message.id)?.(true);
    } else if (message.type === 'error') {
      handlers.onProblem(message.message);
    }
  };

  const connect = (): void => {
    timer = null;
    greeted = false;
    let pending = '';
    const opened = createConnection(socketPath);
    socket = opened;
    opened.setEncoding('utf8');
    opened.on('data', (text: string) => {
      pending += text;
      const lines = pending.split('\n');
      pending = lines.pop() ?? '';
      if (pending.length > LINE_MAX) opened.destroy(new Error('a line without end'));
      for (const line of lines) receive(line);
    });
    opened.on('error', () => undefined); // 'close' follows and tries again.
    opened.on('close', () => {
      socket = null;
      if (closed) return;
      timer = setTimeout(connect, delay);
      delay = Math.min(delay * 2, RETRY_MAX_MS);
    });
  };
  connect();

  return {
    get live() {
      return live;
    },
    abort: (reason, graceMs, id) => {
      if (!socket || !greeted) return false;
      const message: ControlToWrapper = { v: CONTROL_VERSION, type: 'abort', id, reason, graceMs };
      return socket.write(`${JSON.stringify(message)}\n`);
    },
    ping: (id, ms) =>
      new Promise((resolve) => {
        if (!socket || !greeted) return resolve(false);
        const settle = (answered: boolean): void => {
          clearTimeout(late);
          pings.delete(id);
          resolve(answered);
        };
        const late = setTimeout(() => settle(false), ms);
        pings.set(id, settle);
        const message: ControlToWrapper = { v: CONTROL_VERSION, type: 'ping', id };
        socket.write(`${JSON.stringify(message)}\n`);
      }),
    close: () => {
      for (const settle of pings.values()) settle(false);
      closed = true;
      if (timer) clearTimeout(timer);
      socket?.destroy();
    },
  };
}
