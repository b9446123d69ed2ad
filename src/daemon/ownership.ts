/**
 * What makes a process the daemon of a workspace: the lock of its state directory, then the
 * lock of its place on this user manager. Both, before anything is removed or written there.
 */
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import { OutliveError } from '../domain/errors.ts';
import type { RuntimeOwner } from '../store/owner-file.ts';
import {
  acquireHostLock,
  acquireRuntimeLock,
  type HostLock,
  hostDescription,
  type RuntimeLock,
} from '../store/runtime-lock.ts';

export interface Ownership {
  /** Owners that died without a word and whose takeover is not stored yet. */
  readonly dead: readonly RuntimeOwner[];
  /** Their takeover is stored. */
  forgetDead(): void;
  /** Says who we are, in both places. @throws OutliveError `disk_full`, `state_dir_unwritable`. */
  describe(owner: RuntimeOwner): void;
  /** As {@link describe}, as far as there is room: one of the two places is memory. */
  introduce(owner: RuntimeOwner): void;
  /** Takes its place on the user manager again when that was removed. @throws OutliveError. */
  renew(): void;
  release(): void;
}

class BothLocks implements Ownership {
  dead: readonly RuntimeOwner[];
  readonly #state: RuntimeLock;
  readonly #host: HostLock;
  readonly #log: Logger;

  constructor(state: RuntimeLock, host: HostLock, log: Logger) {
    this.#state = state;
    this.#host = host;
    this.#log = log;
    this.dead = state.dead;
  }

  forgetDead(): void {
    for (const owner of this.dead) this.#state.forget(owner);
    this.dead = [];
  }

  describe(owner: RuntimeOwner): void {
    this.#host.describe(owner);
    this.#state.describe(owner);
  }

  introduce(owner: RuntimeOwner): void {
    for (const place of [this.#host, this.#state]) {
      try {
        place.describe(owner);
      } catch (error) {
        if (!(error instanceof OutliveError)) throw error;
        this.#log.warn({ code: error.code }, `the owner is not described: ${error.message}`);
      }
    }
  }

  renew(): void {
    this.#host.renew();
  }

  release(): void {
    this.#host.release();
    this.#state.release();
  }
}

/**
 * Takes the workspace or refuses within a moment.
 * @throws OutliveError `workspace_owned` with the owner, `state_dir_unwritable`, `disk_full`.
 */
export function takeOwnership({ workspace, directories }: Config, log: Logger): Ownership {
  const { state, userRuntime } = directories;
  const stateLock = acquireRuntimeLock(state, workspace, hostDescription(userRuntime, workspace));
  try {
    return new BothLocks(stateLock, acquireHostLock(userRuntime, workspace), log);
  } catch (error) {
    stateLock.release();
    throw error;
  }
}
