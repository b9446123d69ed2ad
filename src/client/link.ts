/** The patience of a follower: when to connect again, how long to wait, when to give up. */
import { setTimeout as pause } from 'node:timers/promises';
import { OutliveError } from '../domain/errors.ts';

/** All in milliseconds. */
export interface FollowTimes {
  /** Gives up with `daemon_unreachable` after this long without any connection. */
  readonly giveUpMs: number;
  /** Pause before the first reconnect; doubles up to `maxPauseMs`. */
  readonly minPauseMs: number;
  readonly maxPauseMs: number;
  /** A stream without a byte, not even a keepalive comment, for this long is taken for dead. */
  readonly silenceMs: number;
  /** How long the server may take to close the stream after a terminal event. */
  readonly lingerMs: number;
}

export const FOLLOW_TIMES: FollowTimes = {
  giveUpMs: 60_000,
  minPauseMs: 100,
  maxPauseMs: 2_000,
  silenceMs: 45_000,
  lingerMs: 1_000,
};

/** One follower's link to the daemon, over all its connections. */
export class Link {
  readonly #times: FollowTimes;
  readonly #tell: (state: 'connected' | 'away') => void;
  /** When the time without a connection began, null while there is one. */
  #awaySince: number | null = performance.now();
  #toldAway = false;
  #pauseMs: number;
  /** Where the sequence broke last; the same break twice is final. */
  #breakAfter: number | null = null;

  constructor(times: FollowTimes, tell: (state: 'connected' | 'away') => void) {
    this.#times = times;
    this.#tell = tell;
    this.#pauseMs = times.minPauseMs;
  }

  connected(): void {
    this.#awaySince = null;
    if (this.#toldAway) this.#tell('connected');
    this.#toldAway = false;
  }

  /** Events came: the next reconnect is the first of a new series. */
  progressed(): void {
    this.#pauseMs = this.#times.minPauseMs;
  }

  /** Throws what another connection cannot mend. */
  lost(error: unknown, seq: number): void {
    const code = error instanceof OutliveError ? error.code : null;
    if (code === 'control_plane_snapshot_required' && this.#breakAfter !== seq) {
      // The stream could not go on (a gap, a reader too slow), but the store may hold it all.
      this.#breakAfter = seq;
      return;
    }
    // We took too long over what came; what follows is still to be had.
    if (code === 'stream_stalled') return;
    if (code !== 'daemon_unreachable' && code !== 'shutting_down') throw error;
    const now = performance.now();
    this.#awaySince ??= now;
    if (now - this.#awaySince >= this.#times.giveUpMs) throw error;
    if (!this.#toldAway) this.#tell('away');
    this.#toldAway = true;
  }

  async pause(signal: AbortSignal | undefined): Promise<void> {
    const { giveUpMs, maxPauseMs } = this.#times;
    const left =
      this.#awaySince === null ? Infinity : this.#awaySince + giveUpMs - performance.now();
    const wait = Math.max(0, Math.min(this.#pauseMs, left));
    this.#pauseMs = Math.min(this.#pauseMs * 2, maxPauseMs);
    await pause(wait, undefined, signal ? { signal } : {}).catch(() => {}); // Only an abort rejects.
  }
}
