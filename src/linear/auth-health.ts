/**
 * Whether anybody may call Linear: a problem is stored until a token works again, so that it is
 * seen while nobody looks and after a restart.
 */
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Entropy } from '../domain/ids.ts';
import { timestamp } from '../domain/ids.ts';
import type { Store } from '../store/store.ts';

/** The fact's name in the store. */
export const AUTH_PROBLEM = 'auth_problem';

const problemSchema = z.object({ code: z.string(), message: z.string(), since: z.string() });

/** `code` is OAuth's or ours; `message` says what to do, and never has a secret in it. */
export type StoredAuthProblem = z.infer<typeof problemSchema>;

export interface AuthHealthParts {
  readonly store: Pick<Store, 'write' | 'linearFacts'>;
  readonly entropy: Pick<Entropy, 'now'>;
  readonly log: Logger;
  /** A problem has gone. */
  readonly onGood?: () => void;
}

export class AuthHealth {
  readonly #parts: AuthHealthParts;
  #known: StoredAuthProblem | null;
  /** False after a write that failed: then the store says something else than we know. */
  #isStored = true;

  /** Takes up the problem that an earlier daemon had. @throws OutliveError of the store. */
  constructor(parts: AuthHealthParts) {
    this.#parts = parts;
    const found = problemSchema.safeParse(parts.store.linearFacts.get(AUTH_PROBLEM)?.value);
    this.#known = found.data ?? null;
  }

  /** Null when a token worked last. */
  problem(): StoredAuthProblem | null {
    return this.#known;
  }

  /** Nobody may call. The same problem keeps the time it was first seen. Never throws. */
  failed(code: string, message: string): void {
    const before = this.#known;
    if (before?.code === code && before.message === message && this.#isStored) return;
    const since = before?.since ?? timestamp(this.#parts.entropy);
    this.#known = { code, message, since };
    this.#parts.log.error({ code, since }, `Linear: ${message}`);
    this.#store();
  }

  /** A token worked. Never throws; costs nothing when there was no problem. */
  good(): void {
    if (this.#known === null && this.#isStored) return;
    const before = this.#known;
    this.#known = null;
    this.#store();
    if (before === null) return;
    this.#parts.log.info({ code: before.code, since: before.since }, 'Linear: works');
    this.#parts.onGood?.();
  }

  #store(): void {
    const { store, entropy, log } = this.#parts;
    const value = this.#known;
    try {
      store.write(() => {
        if (value === null) store.linearFacts.remove(AUTH_PROBLEM);
        else store.linearFacts.put(AUTH_PROBLEM, value, timestamp(entropy));
      });
      this.#isStored = true;
    } catch (error) {
      this.#isStored = false;
      log.warn({ err: error }, 'whether Linear may be called is not stored');
    }
  }
}
