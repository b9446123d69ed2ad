/** Waiting for the store: told by the kernel of every change in its files. */
import { type FSWatcher, watch } from 'node:fs';

/** Changes that come together are looked at once. */
const GATHER_MS = 100;

export class StoreWatch {
  readonly #watcher: FSWatcher;
  readonly #waiting = new Set<() => void>();
  #timer: NodeJS.Timeout | null = null;

  constructor(directory: string) {
    this.#watcher = watch(directory, () => {
      this.#timer ??= setTimeout(() => this.#look(), GATHER_MS);
    });
  }

  #look(): void {
    this.#timer = null;
    for (const look of this.#waiting) look();
  }

  /** Resolves with true once `test` passes, with false after `ms` or when `signal` says so. */
  async until(test: () => boolean, ms: number, signal?: AbortSignal): Promise<boolean> {
    if (test()) return true;
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const look = (): void => {
      try {
        if (test()) resolve(true);
      } catch (error) {
        reject(error);
      }
    };
    const end = (): void => resolve(test());
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
    this.#waiting.add(look);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      this.#waiting.delete(look);
    }
  }

  close(): void {
    this.#watcher.close();
    if (this.#timer) clearTimeout(this.#timer);
  }
}
