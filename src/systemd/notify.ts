/**
 * sd_notify(3) through systemd-notify(1), because Node has no datagram sockets of the
 * unix kind. The unit needs NotifyAccess=all: the sender is a child. Rare messages only.
 */
import { spawn } from 'node:child_process';

/** systemd-notify waits for the manager to have seen it; a hung one is given up after this. */
const DEADLINE_MS = 5_000;

export interface NotifyOptions {
  /** NOTIFY_SOCKET; null when nobody waits for word: then nothing is sent. */
  readonly socket: string | null;
  /** The program, for tests. */
  readonly command?: string;
  /** Told what went wrong; nothing is ever thrown. */
  readonly report: (problem: string) => void;
}

/** All resolve once the message is handed over or given up, and never reject. */
export interface Notifier {
  ready(status: string): Promise<void>;
  /** With how long it may take from now on where TimeoutStopSec= is less, milliseconds; null asks for no more. */
  stopping(status: string, deadlineMs: number | null): Promise<void>;
  /** Before WatchdogSec= has passed; each costs a process. */
  watchdog(status: string): Promise<void>;
}

function send(options: NotifyOptions, socket: string, variables: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const child = spawn(options.command ?? 'systemd-notify', variables, {
      env: {
        PATH: '/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin',
        NOTIFY_SOCKET: socket,
      },
      stdio: 'ignore',
      timeout: DEADLINE_MS,
      killSignal: 'SIGKILL',
    });
    child.on('error', (error) => {
      options.report(`systemd-notify cannot be run: ${error.message}`);
      resolve();
    });
    child.on('exit', (code, signal) => {
      if (code !== 0) options.report(`systemd-notify ended with ${code ?? signal}`);
      resolve();
    });
  });
}

/** The service manager's ear, or nobody's when no socket was handed in. */
export function createNotifier(options: NotifyOptions): Notifier {
  const { socket } = options;
  const tell = async (...variables: readonly string[]): Promise<void> => {
    if (socket === null) return;
    await send(options, socket, variables);
  };
  // One line per variable: a line end would begin another one.
  const statusLine = (status: string): string => `STATUS=${status.replace(/\s+/g, ' ')}`;
  return {
    ready: (status) => tell('READY=1', statusLine(status)),
    stopping: (status, deadlineMs) => {
      const more = deadlineMs === null ? [] : [`EXTEND_TIMEOUT_USEC=${deadlineMs * 1_000}`];
      return tell('STOPPING=1', statusLine(status), ...more);
    },
    watchdog: (status) => tell('WATCHDOG=1', statusLine(status)),
  };
}
