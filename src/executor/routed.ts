/**
 * Two executors behind one port: new attempts start on one of them, and each attempt stays
 * with the one that started it, whatever the machine has become since.
 */
import { OutliveError } from '../domain/errors.ts';
import { markIn } from './direct-facts.ts';
import type {
  Executor,
  HostFacts,
  ListedUnit,
  StartRequest,
  StartResult,
  UnitFacts,
} from './port.ts';

export type ExecutorKind = Executor['kind'];

/** The executor of a daemon, and what a person should know about it. */
export interface ChosenExecutor extends Executor {
  /** One sentence each, `code: text`; empty when all is as it should be. */
  readonly problems: readonly string[];
}

export interface RoutedOptions {
  /** Where new attempts start. */
  readonly primary: ExecutorKind;
  readonly systemd: Executor;
  readonly direct: Executor;
  /** Whether systemd could be reached at the start; it may still come. */
  readonly systemdIsUp: boolean;
  /** Why new attempts start where they do; null when that needs no word. */
  readonly reason: string | null;
  /** What the store says about the attempt of this unit; null for none. */
  readonly executorOf: (unit: string) => ExecutorKind | null;
  /** True when the daemon is in a unit of a service manager, and direct attempts with it. */
  readonly managed: boolean;
  /** Whether attempts that systemd started are not over yet. */
  readonly systemdIsOwed: () => boolean;
  readonly report: (problem: string) => void;
}

const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 30_000;

/** What the direct executor cannot promise; said by every daemon that uses it. */
const LIMITS =
  'without a control group, what leaves its session and clears its environment may be left behind; memory and task limits do not hold';

const MANAGED =
  'the daemon runs in a unit of a service manager, which ends its attempts with it unless it says KillMode=process';

class RoutedExecutor implements ChosenExecutor {
  readonly kind: ExecutorKind;
  readonly #options: RoutedOptions;
  readonly #listeners = new Set<(unit: string | null) => void>();
  #systemdIsUp: boolean;
  #retry: NodeJS.Timeout | null = null;
  #retryMs = RETRY_FIRST_MS;
  #closed = false;

  constructor(options: RoutedOptions) {
    this.kind = options.primary;
    this.#options = options;
    this.#systemdIsUp = options.systemdIsUp;
    if (!this.#systemdIsUp && options.systemdIsOwed()) this.#tryLater();
  }

  get healthy(): boolean {
    const { systemd, systemdIsOwed } = this.#options;
    if (this.kind === 'systemd') return systemd.healthy;
    return this.#systemdIsUp ? systemd.healthy || !systemdIsOwed() : !systemdIsOwed();
  }

  get problems(): readonly string[] {
    const problems: string[] = [];
    const { reason, managed } = this.#options;
    if (this.kind === 'direct') {
      problems.push(`direct_executor: ${reason ?? 'as configured'}; ${LIMITS}`);
      if (managed) problems.push(`direct_executor: ${MANAGED}`);
    }
    if (!this.healthy) {
      problems.push(
        this.kind === 'systemd'
          ? 'bus_unavailable: the user bus is away; attempts run on'
          : 'bus_unavailable: attempts that systemd started wait for the user bus',
      );
    }
    return problems;
  }

  /** Whoever made this has connected what can be. */
  async connect(): Promise<void> {}

  async host(): Promise<HostFacts> {
    const { systemd, direct } = this.#options;
    return await (this.#systemdIsUp ? systemd : direct).host();
  }

  async start(request: StartRequest): Promise<StartResult> {
    return await this.#options[this.kind].start(request);
  }

  describeStart(request: StartRequest): readonly { name: string; value: string }[] {
    return this.#options[this.kind].describeStart(request);
  }

  async read(unit: string): Promise<UnitFacts | null> {
    return await this.#of(unit).read(unit);
  }

  /**
   * What can be listed. While systemd is away its units are missing, which concludes
   * nothing: whoever then reads one of them is told that nobody can tell.
   */
  async list(): Promise<readonly ListedUnit[]> {
    const { systemd, direct } = this.#options;
    const lists = await Promise.all([
      direct.list(),
      this.#systemdIsUp && (this.kind === 'systemd' || systemd.healthy) ? systemd.list() : [],
    ]);
    return lists.flat();
  }

  async hold(unit: string): Promise<boolean> {
    return await this.#of(unit).hold(unit);
  }

  async release(unit: string): Promise<void> {
    await this.#of(unit).release(unit);
  }

  async stop(unit: string): Promise<void> {
    await this.#of(unit).stop(unit);
  }

  async kill(unit: string, signal: number): Promise<void> {
    await this.#of(unit).kill(unit, signal);
  }

  async waitEmpty(controlGroup: string, deadlineMs: number): Promise<boolean> {
    const { systemd, direct } = this.#options;
    if (markIn(controlGroup) !== null) return await direct.waitEmpty(controlGroup, deadlineMs);
    this.#needSystemd();
    return await systemd.waitEmpty(controlGroup, deadlineMs);
  }

  onHint(listener: (unit: string | null) => void): () => void {
    const { systemd, direct } = this.#options;
    this.#listeners.add(listener);
    const stops = [systemd.onHint(listener), direct.onHint(listener)];
    return () => {
      this.#listeners.delete(listener);
      for (const stop of stops) stop();
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#retry) clearTimeout(this.#retry);
    await Promise.all([this.#options.systemd.close(), this.#options.direct.close()]);
  }

  /** The executor of an attempt is the one that started it; of a unit nobody knows, the one of new ones. */
  #of(unit: string): Executor {
    const kind = this.#options.executorOf(unit) ?? this.kind;
    if (kind === 'systemd') this.#needSystemd();
    return this.#options[kind];
  }

  #needSystemd(): void {
    if (this.#systemdIsUp) return;
    throw new OutliveError(
      'bus_unavailable',
      'systemd started this attempt, and its user manager cannot be reached.',
    );
  }

  #tryLater(): void {
    this.#retry = setTimeout(() => void this.#try(), this.#retryMs);
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_MAX_MS);
  }

  async #try(): Promise<void> {
    try {
      await this.#options.systemd.connect();
    } catch (error) {
      if (!(error instanceof OutliveError)) this.#options.report(String(error));
      if (!this.#closed && this.#options.systemdIsOwed()) this.#tryLater();
      return;
    }
    this.#systemdIsUp = true;
    for (const listener of [...this.#listeners]) listener(null);
  }
}

/** Joins two executors; nothing is asked of either. */
export function routeExecutors(options: RoutedOptions): ChosenExecutor {
  return new RoutedExecutor(options);
}
