/**
 * Sees to it that the API socket stays where clients look for it. A user manager that ends
 * takes `$XDG_RUNTIME_DIR` with it, while a daemon that runs outside of it lives on.
 */
import { type FSWatcher, watch } from 'node:fs';
import path from 'node:path';
import type { Logger } from 'pino';
import { OutliveError } from '../domain/errors.ts';
import { createHint } from '../supervisor/signal.ts';

/** inotify tells of what is removed, not of what is mounted over: then this, milliseconds. */
const RECHECK_MS = 60_000;
const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 30_000;

export interface SocketGuard {
  /** Something happened that may have moved the directory. */
  hint(): void;
  close(): Promise<void>;
}

export interface SocketGuardOptions {
  readonly socketPath: string;
  readonly log: Logger;
  /** Puts the socket back where it is gone. @returns false when it is in place. */
  readonly putBack: () => Promise<boolean>;
  /** It is somebody else's by now. */
  readonly onLost: (error: OutliveError) => void;
}

class Guard implements SocketGuard {
  readonly #options: SocketGuardOptions;
  readonly #hints = createHint();
  readonly #done: Promise<void>;
  #watcher: FSWatcher | null = null;
  #closed = false;

  constructor(options: SocketGuardOptions) {
    this.#options = options;
    this.#watch();
    this.#done = this.#run();
  }

  hint(): void {
    this.#hints.raise();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.hint();
    await this.#done;
    this.#watcher?.close();
  }

  async #run(): Promise<void> {
    let retryMs = RETRY_FIRST_MS;
    let waitMs = RECHECK_MS;
    for (;;) {
      await this.#hints.wait(waitMs);
      if (this.#closed) return;
      try {
        await this.#check();
        retryMs = RETRY_FIRST_MS;
        waitMs = RECHECK_MS;
      } catch (error) {
        if (error instanceof OutliveError && error.code === 'workspace_owned') {
          this.#options.onLost(error);
          return;
        }
        this.#options.log.warn({ err: error }, 'the API socket is gone and cannot be put back yet');
        waitMs = retryMs;
        retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
      }
    }
  }

  async #check(): Promise<void> {
    if (!(await this.#options.putBack())) return;
    this.#options.log.warn('the API socket was gone and is put back');
    this.#watch(); // The directory may be another one.
    this.hint(); // And whoever removed it may have gone on before it was watched.
  }

  #watch(): void {
    this.#watcher?.close();
    this.#watcher = null;
    const directory = path.dirname(this.#options.socketPath);
    const name = path.basename(this.#options.socketPath);
    try {
      this.#watcher = watch(directory, (_event, changed) => {
        if (changed === null || changed === name || changed === path.basename(directory)) {
          this.hint();
        }
      });
      this.#watcher.on('error', () => this.hint());
    } catch (error) {
      this.#options.log.warn({ err: error }, 'the directory of the API socket cannot be watched');
    }
  }
}

/** Begins to guard. */
export function guardSocket(options: SocketGuardOptions): SocketGuard {
  return new Guard(options);
}
