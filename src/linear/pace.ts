/**
 * When an issue is looked at again: one look at a time for each, later and later while it fails,
 * and not before something has changed while it waits for a person or for other work.
 */

const RETRY_MS = 2_000;
const RETRY_MAX_MS = 5 * 60_000;

/** A timer and another clock may differ by as much. */
const SLACK_MS = 50;

interface Issue {
  running: Promise<void> | null;
  isWanted: boolean;
  failures: number;
  notBefore: number;
  /** The turn that the look under way tries to begin. */
  trying: string | null;
  /** The turn that could not begin; another one may. */
  failed: string | null;
  /** By turn: true once it is worth another try. */
  readonly parked: Map<string, () => boolean>;
  timer: NodeJS.Timeout | null;
}

export interface Trouble {
  readonly key: string;
  /** The turn that could not begin; null where it did not come to one. */
  readonly turnId: string | null;
  readonly error: unknown;
  /** In a row. */
  readonly failures: number;
}

export interface PaceOptions {
  /** Milliseconds that only go forward. */
  readonly monotonic: () => number;
  /** One look at an issue. */
  readonly look: (key: string) => Promise<void>;
  readonly onTrouble: (trouble: Trouble) => void;
}

export class Pace {
  readonly #options: PaceOptions;
  readonly #issues = new Map<string, Issue>();
  #isClosed = false;

  constructor(options: PaceOptions) {
    this.#options = options;
  }

  /** Looks at these issues, each beside the others; resolves when all looks that may be are done. */
  async lookAt(keys: readonly string[]): Promise<void> {
    for (const key of this.#issues.keys()) if (!keys.includes(key)) this.#forget(key);
    await Promise.all(keys.map((key) => this.#lookAt(key)));
  }

  /** Whether a turn may be placed and begun now; if so, the look is taken to try that. */
  mayBegin(key: string, turnId: string): boolean {
    const issue = this.#issue(key);
    const isBackedOff =
      issue.failed === turnId && this.#options.monotonic() < issue.notBefore - SLACK_MS;
    if (isBackedOff || issue.parked.get(turnId)?.() === false) return false;
    issue.parked.delete(turnId);
    issue.trying = turnId;
    return true;
  }

  /** The turn waits for a person or for other work, until `isOver`; others of the issue need not. */
  park(key: string, turnId: string, isOver: () => boolean): void {
    this.#issue(key).parked.set(turnId, isOver);
  }

  /** Begins no more looks; resolves when those under way are done. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { timer } of this.#issues.values()) if (timer) clearTimeout(timer);
    await Promise.all([...this.#issues.values()].flatMap(({ running }) => running ?? []));
  }

  #issue(key: string): Issue {
    const known = this.#issues.get(key);
    if (known) return known;
    const fresh: Issue = {
      ...{ running: null, isWanted: false, timer: null, trying: null, failed: null },
      ...{ failures: 0, notBefore: 0, parked: new Map() },
    };
    this.#issues.set(key, fresh);
    return fresh;
  }

  #forget(key: string): void {
    const issue = this.#issues.get(key);
    if (!issue || issue.running) return;
    if (issue.timer) clearTimeout(issue.timer);
    this.#issues.delete(key);
  }

  #lookAt(key: string): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    const issue = this.#issue(key);
    issue.isWanted = true;
    issue.running ??= this.#run(key, issue);
    return issue.running;
  }

  async #run(key: string, issue: Issue): Promise<void> {
    // Not before whoever asked has `running`.
    await Promise.resolve();
    while (issue.isWanted && !this.#isClosed) {
      issue.isWanted = false;
      issue.trying = null;
      try {
        await this.#options.look(key);
        if (issue.trying !== null) this.#succeeded(issue);
      } catch (error) {
        if (!this.#isClosed) this.#failed(key, issue, error);
      }
    }
    // In the tick in which nothing was wanted any more: who comes later begins another run.
    issue.running = null;
  }

  #succeeded(issue: Issue): void {
    issue.failures = 0;
    issue.failed = null;
  }

  #failed(key: string, issue: Issue, error: unknown): void {
    const { monotonic, onTrouble } = this.#options;
    const ms = Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** Math.min(issue.failures, 10));
    issue.failures += 1;
    issue.failed = issue.trying;
    issue.notBefore = monotonic() + ms;
    if (issue.timer) clearTimeout(issue.timer);
    issue.timer = setTimeout(() => void this.#lookAt(key), ms).unref();
    onTrouble({ key, turnId: issue.trying, error, failures: issue.failures });
  }
}
