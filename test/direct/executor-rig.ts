/** What the tests of the direct executor share: a workspace of their own, swept afterwards. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type ExitRecord, exitRecordSchema } from '../../src/domain/evidence.ts';
import { createDirectExecutor } from '../../src/executor/direct.ts';
import { markOf, scanTree } from '../../src/executor/direct-tree.ts';
import type { Executor, StartRequest, UnitFacts } from '../../src/executor/port.ts';
import { signalProcess } from '../../src/executor/process-table.ts';
import { appears, within } from '../support/rig.ts';

export const text = (name: string): string =>
  readFileSync(new URL(`../../ops/units/${name}`, import.meta.url), 'utf8');

export interface Attempt {
  readonly request: StartRequest;
  readonly unit: string;
  readonly directory: string;
  /** Waits for the exit record. */
  readonly record: () => Promise<ExitRecord>;
  /** Waits until the script has called `ready`. */
  readonly ready: () => Promise<void>;
  /** Lets a script go on that waits at `gate`. */
  readonly open: () => void;
  /** A pid that the script has written with `echo $! >NAME`. */
  readonly pid: (name: string) => number;
}

export class DirectRig {
  readonly workspace = `t${randomBytes(4).toString('hex')}`;
  readonly home = mkdtempSync(path.join(os.tmpdir(), 'outlive-direct-'));
  readonly exits = path.join(this.home, 'exits');
  readonly reports: string[] = [];
  readonly #executors: Executor[] = [];
  readonly #nonces: string[] = [];
  #counter = 0;

  constructor() {
    mkdirSync(this.exits);
  }

  async connected(): Promise<Executor> {
    const executor = createDirectExecutor({
      workspace: this.workspace,
      directory: path.join(this.home, 'direct'),
      exits: this.exits,
      runtimeDirectory: path.join(this.home, 'run'),
      keeperScript: text('direct-attempt.sh'),
      exitRecordScript: text('exit-record.sh'),
      searchPath: process.env['PATH'] ?? '',
      report: (problem) => this.reports.push(problem),
    });
    this.#executors.push(executor);
    await executor.connect();
    return executor;
  }

  /**
   * An attempt that runs a shell script in a directory of its own. In the script `ready`
   * says that it got so far, and `gate` waits to be let on.
   */
  attempt(script: string, changes: Partial<StartRequest> = {}): Attempt {
    const directory = mkdtempSync(path.join(this.home, 'attempt-'));
    const file = path.join(directory, 'main.sh');
    execFileSync('mkfifo', [path.join(directory, 'gate')]);
    // As the wrapper does: nothing it starts carries the nonce, or holds its files open.
    const head = 'exec 9>&-; ready() { : >ready; }\ngate() { read _ <gate; }\n';
    writeFileSync(file, `${head}own=$OUTLIVE_NONCE; unset OUTLIVE_NONCE\n${script}\n`);
    const nonce = randomBytes(16).toString('hex');
    this.#nonces.push(nonce);
    const unit = `outlive-${this.workspace}-job-${++this.#counter}.service`;
    const request: StartRequest = {
      unit,
      nonce,
      attemptId: `attempt-${this.#counter}`,
      description: `outlive test ${this.#counter}`,
      argv: ['/bin/sh', file],
      attemptDirectory: directory,
      environment: { PATH: process.env['PATH'] ?? '' },
      credentials: [],
      hardTimeoutMs: 120_000,
      cancelGraceMs: 0,
      ...changes,
    };
    return {
      request,
      unit,
      directory,
      record: async () => {
        const record = path.join(this.exits, `${request.nonce}.json`);
        await appears(record);
        return exitRecordSchema.parse(JSON.parse(readFileSync(record, 'utf8')));
      },
      ready: () => appears(path.join(directory, 'ready')),
      open: () => writeFileSync(path.join(directory, 'gate'), 'go\n'),
      pid: (name) => Number(readFileSync(path.join(directory, name), 'utf8')),
    };
  }

  /** Starts and insists that it is there. */
  async start(executor: Executor, attempt: Attempt): Promise<UnitFacts> {
    const result = await executor.start(attempt.request);
    if (result.kind !== 'present') throw new Error(`not present: ${JSON.stringify(result)}`);
    return result.facts;
  }

  /** Reads at every hint until it is as wished. */
  async until(
    executor: Executor,
    unit: string,
    wish: (facts: UnitFacts | null) => boolean,
  ): Promise<UnitFacts | null> {
    let look = (): void => {};
    const stop = executor.onHint(() => look());
    try {
      return await within(
        `${unit} to be as wished`,
        new Promise<UnitFacts | null>((resolve, reject) => {
          look = () => {
            executor
              .read(unit)
              .then((facts) => wish(facts) && resolve(facts))
              .catch(reject);
          };
          look();
        }),
      );
    } finally {
      stop();
    }
  }

  ended(executor: Executor, unit: string): Promise<UnitFacts | null> {
    return this.until(executor, unit, (facts) => facts === null || isDead(facts));
  }

  async end(): Promise<void> {
    for (const nonce of this.#nonces) {
      const { core, marked } = await scanTree(markOf(nonce), nonce);
      await Promise.all([...core, ...marked].map((each) => signalProcess(each, 9)));
    }
    await Promise.all(this.#executors.map((executor) => executor.close()));
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}

export const isDead = ({ state }: UnitFacts): boolean => state === 'inactive' || state === 'failed';

/** True when a process of this pid lives and is no zombie. */
export function lives(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
