/**
 * When an issue is looked at again: one look at a time for each, later and later while it fails,
 * and not before something has changed while it waits for a person or for other work.
 */

const RETRY_MS = 2_000;
const RETRY_MAX_MS = 5 * 60_000;

/** What an issue waits for. */
export interface Parked {
  /** It concerns this turn: another one is looked at at once. */
  readonly turnId: string;
  /** True once it is worth another look. */
  readonly isOver: () => boolean;
}

interface Issue {
  running: Promise<void> | null;
  isWanted: boolean;
  failures: number;
  notBefore: number;
  parked: Parked | null;
  timer: NodeJS.Timeout | null;
}

export interface PaceOptions {
  /** Milliseconds that only go forward. */
  readonly monotonic: () => number;
  /** One look at an issue. */
  readonly look: (key: string) => Promise<void>;
  /** A look failed, for the `failures`th time in a row. */
  readonly onTrouble: (key: string, error: unknown, failures: number) => void;
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

  /** Whether a turn may be placed and begun now. */
  mayBegin(key: string, turnId: string): boolean {
    const { parked = null, notBefore = 0 } = this.#issues.get(key) ?? {};
    if (this.#options.monotonic() < notBefore) return false;
    return parked === null || parked.turnId !== turnId || parked.isOver();
  }

  park(key: string, parked: Parked): void {
    this.#issue(key).parked = parked;
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
      ...{ running: null, isWanted: false, parked: null, timer: null },
      ...{ failures: 0, notBefore: 0 },
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
    issue.running ??= this.#run(key, issue).finally(() => {
      issue.running = null;
    });
    return issue.running;
  }

  async #run(key: string, issue: Issue): Promise<void> {
    while (issue.isWanted && !this.#isClosed) {
      issue.isWanted = false;
      try {
        await this.#options.look(key);
        issue.failures = 0;
        issue.notBefore = 0;
      } catch (error) {
        if (this.#isClosed) return;
        this.#failed(key, issue, error);
      }
    }
  }

  #failed(key: string, issue: Issue, error: unknown): void {
    const { monotonic, onTrouble } = this.#options;
    const ms = Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** Math.min(issue.failures, 10));
    issue.failures += 1;
    issue.notBefore = monotonic() + ms;
    onTrouble(key, error, issue.failures);
    if (issue.timer) clearTimeout(issue.timer);
    issue.timer = setTimeout(() => void this.#lookAt(key), ms).unref();
  }
}
