/** What the real-systemd tests of the executor share: a workspace of their own, swept afterwards. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type ExitRecord, exitRecordSchema } from '../../src/domain/evidence.ts';
import { dropInDirectoryName, sliceName } from '../../src/domain/names.ts';
import type { Executor, StartRequest, UnitFacts } from '../../src/executor/port.ts';
import { createSystemdExecutor, type SystemdExecutorOptions } from '../../src/systemd/executor.ts';
import { appears, systemctl, within } from '../support/rig.ts';

function need(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run this through ops/scripts/host`);
  return value;
}

/** What a promise is rejected with; listened to from the start, awaited when due. */
export function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => {
      throw new Error(`resolved to ${String(value)}`);
    },
    (error: unknown) => error,
  );
}

/** The next hint that passes. Begin it before what causes it. */
export function nextHint(
  executor: Executor,
  passes: (unit: string | null) => boolean,
): Promise<string | null> {
  return within(
    'a hint',
    new Promise((resolve) => {
      const stop = executor.onHint((unit) => {
        if (!passes(unit)) return;
        stop();
        resolve(unit);
      });
    }),
  );
}

export interface Attempt {
  readonly request: StartRequest;
  readonly unit: string;
  readonly directory: string;
  readonly record: () => Promise<ExitRecord>;
  /** Waits until the script has called `ready`. */
  readonly ready: () => Promise<void>;
  /** Lets a script go on that waits at `gate`. */
  readonly open: () => void;
}

export class Rig {
  readonly workspace = `t${randomBytes(4).toString('hex')}`;
  readonly home = mkdtempSync(path.join(os.tmpdir(), 'outlive-executor-'));
  readonly userRuntime = need('XDG_RUNTIME_DIR');
  readonly busPath = path.join(this.userRuntime, 'bus');
  readonly dropInDirectory = path.join(
    this.userRuntime,
    'systemd/user',
    dropInDirectoryName(this.workspace),
  );
  readonly reports: string[] = [];
  readonly #executors: Executor[] = [];
  #counter = 0;

  exits = this.home;

  executor(options: Partial<SystemdExecutorOptions> = {}): Executor {
    const made = createSystemdExecutor({
      workspace: this.workspace,
      busAddress: `unix:path=${this.busPath}`,
      userRuntime: this.userRuntime,
      exits: this.exits,
      exitRecordScript: readFileSync(
        new URL('../../ops/units/exit-record.sh', import.meta.url),
        'utf8',
      ),
      entropy: { random: (size) => randomBytes(size) },
      report: (problem) => this.reports.push(problem),
      ...options,
    });
    this.#executors.push(made);
    return made;
  }

  async connected(options: Partial<SystemdExecutorOptions> = {}): Promise<Executor> {
    const executor = this.executor(options);
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
    writeFileSync(file, `ready() { : >ready; }\ngate() { read _ <gate; }\n${script}\n`);
    const nonce = randomBytes(16).toString('hex');
    const unit = `outlive-${this.workspace}-job-${++this.#counter}.service`;
    const request: StartRequest = {
      unit,
      nonce,
      attemptId: `attempt-${this.#counter}`,
      description: `outlive test ${this.#counter}`,
      argv: ['/bin/sh', file],
      attemptDirectory: directory,
      environment: {},
      credentials: [],
      hardTimeoutMs: 120_000,
      cancelGraceMs: 0,
      ...changes,
    };
    return {
      request,
      unit: request.unit,
      directory,
      record: async () => {
        const record = path.join(this.exits, `${request.nonce}.json`);
        await appears(record);
        return exitRecordSchema.parse(JSON.parse(readFileSync(record, 'utf8')));
      },
      ready: () => appears(path.join(directory, 'ready')),
      open: () => writeFileSync(path.join(directory, 'gate'), 'go\n'),
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
            executor.read(unit).then((facts) => {
              if (wish(facts)) resolve(facts);
            }, reject);
          };
          look();
        }),
      );
    } finally {
      stop();
    }
  }

  /** The facts once it has ended. */
  async ended(executor: Executor, unit: string): Promise<UnitFacts> {
    const over = (facts: UnitFacts | null): boolean =>
      facts === null || facts.state === 'inactive' || facts.state === 'failed';
    const facts = await this.until(executor, unit, over);
    if (facts === null) throw new Error(`${unit} was dropped before it could be read`);
    return facts;
  }

  /** Stops what still runs and takes away every trace. */
  async sweep(): Promise<void> {
    for (const executor of this.#executors) await executor.close();
    await systemctl('stop', sliceName(this.workspace)).catch(() => {});
    await systemctl('reset-failed', `outlive-${this.workspace}*`).catch(() => {});
    rmSync(this.dropInDirectory, { recursive: true, force: true });
    rmSync(this.home, { recursive: true, force: true });
  }
}
