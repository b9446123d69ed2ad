/**
 * The executor port without systemd: an attempt is a session of processes that a small
 * shell script (direct-attempt.sh) keeps, so that the deadline, the exit record and the end
 * of what is left behind need no daemon. Nothing is known here that a fresh look at files
 * and /proc would not show again: a daemon that finds attempts takes them up by reading them.
 */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { OutliveError } from '../domain/errors.ts';
import { parseUnitName } from '../domain/names.ts';
import { ensureFile } from './atomic-file.ts';
import { AliveWatches } from './direct-alive.ts';
import { directFacts, type Look, markIn } from './direct-facts.ts';
import {
  aliveFile,
  type Entry,
  type KeeperProcess,
  Registry,
  readExitRecord,
  readKeeper,
} from './direct-files.ts';
import {
  findProgram,
  holdCredentials,
  type KeeperFiles,
  keeperCommand,
  refusal,
  sendOff,
} from './direct-start.ts';
import { isEmpty, markOf, scanTree, type Tree } from './direct-tree.ts';
import type { Executor, HostFacts, StartRequest, StartResult, UnitFacts } from './port.ts';
import { type Bearer, bootId, readBearer, signalProcess, uptimeSeconds } from './process-table.ts';

export interface DirectExecutorOptions {
  readonly workspace: string;
  /** Absolute; entries and scripts. Durable: what runs must be found again. */
  readonly directory: string;
  /** Absolute directory of the exit records; it must exist. */
  readonly exits: string;
  /** Absolute; `<attempt id>/` below it holds an attempt's credentials while it runs. */
  readonly runtimeDirectory: string;
  /** Texts of ops/units/direct-attempt.sh and exit-record.sh, read at the daemon's start. */
  readonly keeperScript: string;
  readonly exitRecordScript: string;
  /** Where setsid and coreutils are looked for, besides the usual directories. */
  readonly searchPath: string;
  /** Told of what nobody waits for. */
  readonly report?: (problem: string) => void;
}

const SIGKILL = 9;
const SIGTERM = 15;
/** Between two looks at processes that are not our children: no event tells of their end. */
const LOOK_AGAIN_MS = 50;
const LOOK_AGAIN_MAX_MS = 500;
/** How long killing goes on at once; the next look at the attempt takes it up again. */
const KILLING_MS = 10_000;
/** A keeper that died cannot enforce the deadline; timeout is given this long to do it. */
const DEADLINE_MARGIN_S = 10;
const PROGRAMS = ['setsid', 'timeout', 'mkfifo', 'grep', 'sync', 'ln', 'mv', 'sleep'];

class DirectExecutor implements Executor {
  readonly kind = 'direct';
  readonly healthy = true;
  readonly #options: DirectExecutorOptions;
  readonly #registry: Registry;
  readonly #files: KeeperFiles;
  readonly #alive: AliveWatches;
  readonly #listeners = new Set<(unit: string | null) => void>();
  readonly #sweeping = new Set<string>();
  #closed = false;

  constructor(options: DirectExecutorOptions) {
    this.#options = options;
    this.#registry = new Registry(options.directory);
    this.#files = {
      keeper: path.join(options.directory, 'direct-attempt.sh'),
      exitRecord: path.join(options.directory, 'exit-record.sh'),
      exits: options.exits,
    };
    this.#alive = new AliveWatches((unit) => this.#hint(unit));
  }

  /** Makes sure of the programs it needs, and forgets what can never come any more. */
  async connect(): Promise<void> {
    for (const name of PROGRAMS) {
      if ((await findProgram(name, this.#options.searchPath)) !== null) continue;
      throw new OutliveError(
        'no_user_manager',
        `Without a systemd user manager ${name} is needed, and it is not on PATH. Install util-linux and coreutils.`,
      );
    }
    for (const unit of await this.#registry.units()) await this.#forgetIfOver(unit);
  }

  async host(): Promise<HostFacts> {
    return { bootId: await bootId(), manager: null, managerState: null };
  }

  async start(request: StartRequest): Promise<StartResult> {
    if (!this.#isOurs(request.unit)) {
      throw new OutliveError(
        'internal',
        `${request.unit} is no unit of ${this.#options.workspace}.`,
      );
    }
    const present = await this.read(request.unit);
    if (present) return this.#found(request, present);
    let command: ReturnType<typeof keeperCommand>;
    try {
      const { keeperScript, exitRecordScript } = this.#options;
      await ensureFile(this.#files.keeper, keeperScript, 0o600);
      await ensureFile(this.#files.exitRecord, exitRecordScript, 0o600);
      const held = await holdCredentials(request, this.#heldDirectory(request));
      command = keeperCommand(request, this.#files, held);
      const { unit, nonce, attemptDirectory } = request;
      // Before the start: a daemon that dies right after it must find what it started.
      await this.#registry.put({ v: 1, unit, nonce, attemptDirectory, bootId: await bootId() });
    } catch (error) {
      throw refusal(error);
    }
    const reason = await sendOff(command, request.attemptDirectory).catch((error: unknown) => {
      throw refusal(error);
    });
    const facts = await this.read(request.unit);
    if (facts) return this.#found(request, facts);
    return { kind: 'absent', reason: reason ?? 'it began, and nothing of it is left' };
  }

  describeStart(request: StartRequest): readonly { name: string; value: string }[] {
    const held = request.credentials.length > 0 ? this.#heldDirectory(request) : null;
    const { argv, environment } = keeperCommand(request, this.#files, held);
    return [
      { name: 'ExecStart', value: JSON.stringify(['setsid', '--fork', ...argv]) },
      {
        name: 'Environment',
        value: JSON.stringify(Object.entries(environment).map((pair) => pair.join('='))),
      },
      { name: 'WorkingDirectory', value: request.attemptDirectory },
      { name: 'UMask', value: '0077' },
    ];
  }

  async read(unit: string): Promise<UnitFacts | null> {
    const entry = await this.#registry.get(unit);
    if (!entry) return null;
    const look = await this.#look(entry);
    const facts = directFacts(look);
    if (!facts) return null;
    if (facts.state !== 'inactive' && facts.state !== 'failed')
      this.#alive.watch(entry, look.keeper);
    if (await this.#isOrphaned(look, facts)) this.#sweep(entry);
    return facts;
  }

  async list(): Promise<readonly UnitFacts[]> {
    const units = await this.#registry.units();
    const facts = await Promise.all(
      units.filter((unit) => this.#isOurs(unit)).map((unit) => this.read(unit)),
    );
    return facts.filter((fact) => fact !== null);
  }

  /** Nothing is dropped here before {@link release}. */
  async hold(unit: string): Promise<boolean> {
    return (await this.read(unit)) !== null;
  }

  async release(unit: string): Promise<void> {
    const facts = await this.read(unit);
    if (facts && facts.state !== 'inactive' && facts.state !== 'failed') return;
    this.#alive.forget(unit);
    await this.#forget(unit);
  }

  /**
   * SIGTERM to the wrapper, through keeper and timeout: SIGKILL then follows without us when
   * its grace is over. To the outermost that lives and to no other: a timeout that gets two
   * at once may die of it and leave its child (seen with coreutils 9.1).
   */
  async stop(unit: string): Promise<void> {
    const entry = await this.#registry.get(unit);
    if (!entry) return;
    const introduced = await readKeeper(entry);
    const keeper = await this.#livingKeeper(entry, introduced);
    if (keeper) {
      await signalProcess(keeper, SIGTERM);
      await pause(LOOK_AGAIN_MS);
      if (await this.#livingKeeper(entry, introduced)) return;
    }
    const { core, marked } = await this.#scan(entry);
    const inner = new Set(marked.map(({ pid }) => pid));
    const told = introduced ? core.filter(({ pid }) => inner.has(pid)) : core;
    const pids = new Set(told.map(({ pid }) => pid));
    const outermost = told.filter(({ ppid }) => !pids.has(ppid));
    await Promise.all(outermost.map((each) => signalProcess(each, SIGTERM)));
  }

  /** Every process but the keeper, which has yet to record the end. */
  async kill(unit: string, signal: number): Promise<void> {
    const entry = await this.#registry.get(unit);
    if (!entry) return;
    await this.#killAll(async () => (await this.#scan(entry)).marked, signal);
  }

  async waitEmpty(controlGroup: string, deadlineMs: number): Promise<boolean> {
    const mark = markIn(controlGroup);
    if (mark === null) {
      throw new OutliveError('internal', `"${controlGroup}" is no group of the direct executor.`);
    }
    return await until(deadlineMs, async () => isEmpty(await scanTree(mark, null)));
  }

  onHint(listener: (unit: string | null) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#alive.close();
  }

  #found(request: StartRequest, facts: UnitFacts): StartResult {
    if (facts.nonce !== request.nonce) return { kind: 'foreign', facts };
    return { kind: 'present', facts, problem: null };
  }

  #heldDirectory({ attemptId }: StartRequest): string {
    return path.join(this.#options.runtimeDirectory, attemptId, 'keys');
  }

  async #scan({ nonce }: Entry): Promise<Tree> {
    return await scanTree(markOf(nonce), nonce);
  }

  /** The record is read last: whoever is found dead has left it before, if ever. */
  async #look(entry: Entry): Promise<Look> {
    const keeper = await readKeeper(entry);
    const keeperLives = (await this.#livingKeeper(entry, keeper)) !== null;
    const gone = keeperLives || entry.bootId !== (await bootId());
    const tree = gone ? null : await this.#scan(entry);
    const record = await readExitRecord(this.#options.exits, entry.nonce);
    return { entry, keeper, keeperLives, tree, record };
  }

  /** By pid, start time, boot and nonce: any one alone may be somebody else's. */
  async #livingKeeper(entry: Entry, keeper: KeeperProcess | null): Promise<Bearer | null> {
    if (!keeper || keeper.bootId !== (await bootId())) return null;
    const found = await readBearer(keeper.pid);
    if (found?.startTicks !== keeper.startTicks) return null;
    return found.has(`OUTLIVE_NONCE=${entry.nonce}`) ? found : null;
  }

  /** True when what still runs has nobody who would end it: then that is up to us. */
  async #isOrphaned({ keeper, keeperLives }: Look, { state }: UnitFacts): Promise<boolean> {
    if (keeperLives || keeper === null) return false;
    if (state === 'deactivating') return true;
    return (
      state === 'active' && (await uptimeSeconds()) > keeper.deadlineCs / 100 + DEADLINE_MARGIN_S
    );
  }

  #sweep(entry: Entry): void {
    const { unit } = entry;
    if (this.#sweeping.has(unit)) return;
    this.#sweeping.add(unit);
    const scan = async (): Promise<readonly Bearer[]> => {
      const { core, rest } = await this.#scan(entry);
      return [...core, ...rest];
    };
    this.#killAll(scan, SIGKILL)
      .then(
        (empty) => {
          if (!empty) this.#report(`${unit}: something of it cannot be killed`);
        },
        (error: unknown) => this.#report(`${unit}: ${String(error)}`),
      )
      .finally(() => {
        this.#sweeping.delete(unit);
        this.#hint(unit);
      });
  }

  /** One signal to each; SIGKILL again and again until nobody is left. False when somebody is. */
  async #killAll(scan: () => Promise<readonly Bearer[]>, signal: number): Promise<boolean> {
    const round = async (): Promise<boolean> => {
      const found = await scan();
      await Promise.all(found.map((each) => signalProcess(each, signal)));
      return found.length === 0;
    };
    if (signal === SIGKILL) return await until(KILLING_MS, round, () => this.#closed);
    return await round();
  }

  /** An entry of another boot, or of processes that are gone, without a record: it says nothing. */
  async #forgetIfOver(unit: string): Promise<void> {
    const entry = await this.#registry.get(unit);
    if (!entry) return;
    const look = await this.#look(entry);
    const mayCome = look.keeper === null && entry.bootId === (await bootId());
    if (directFacts(look) === null && !mayCome) await this.#forget(unit);
  }

  async #forget(unit: string): Promise<void> {
    const entry = await this.#registry.get(unit);
    const keeper = entry && (await readKeeper(entry));
    if (keeper) await rm(aliveFile(entry, keeper), { force: true }); // Of one that was killed.
    await this.#registry.drop(unit);
  }

  #isOurs(unit: string): boolean {
    return parseUnitName(unit)?.workspace === this.#options.workspace;
  }

  #report(problem: string): void {
    this.#options.report?.(problem);
  }

  #hint(unit: string): void {
    if (this.#closed) return;
    for (const listener of [...this.#listeners]) {
      try {
        listener(unit);
      } catch (error) {
        this.#report(`a hint listener failed: ${String(error)}`);
      }
    }
  }
}

/** Looks until it is so, less and less often; false at the deadline or when given up. */
async function until(
  deadlineMs: number,
  isSo: () => Promise<boolean>,
  givenUp: () => boolean = () => false,
): Promise<boolean> {
  const end = performance.now() + deadlineMs;
  let wait = LOOK_AGAIN_MS;
  for (;;) {
    if (await isSo()) return true;
    const left = end - performance.now();
    if (left <= 0 || givenUp()) return false;
    await pause(Math.min(wait, left));
    wait = Math.min(wait * 2, LOOK_AGAIN_MAX_MS);
  }
}

/** The direct executor; it starts nothing and looks at nothing before it is asked. */
export function createDirectExecutor(options: DirectExecutorOptions): Executor {
  return new DirectExecutor(options);
}
