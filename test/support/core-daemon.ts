/**
 * A daemon inside the test's process, on the real user manager and with the real wrapper:
 * for operations that have no endpoint. Takes the directories of a rig.
 */
import pino from 'pino';
import { systemEntropy } from '../../src/compose.ts';
import { ensureDirectory } from '../../src/directories.ts';
import { uuidv7 } from '../../src/domain/ids.ts';
import { type StartWorkUnitInput, startWorkUnitSchema } from '../../src/domain/request.ts';
import { TERMINAL_STATUSES } from '../../src/domain/work-unit.ts';
import { createDirectExecutor } from '../../src/executor/direct.ts';
import type { Executor } from '../../src/executor/port.ts';
import { bundledPi, exitRecordScript, keeperScript, WRAPPER } from '../../src/layout.ts';
import { createCensus, recover } from '../../src/recovery/recover.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import type { EventRow } from '../../src/store/events.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import type { WorkUnitRow } from '../../src/store/work-units.ts';
import { STARVING_MS } from '../../src/supervisor/admission.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { type Faults, noFaults } from '../../src/supervisor/faults.ts';
import { createHub, type Hub } from '../../src/supervisor/hub.ts';
import { DEFAULT_POLICIES } from '../../src/supervisor/policies.ts';
import { createSupervisor, type Supervisor } from '../../src/supervisor/supervisor.ts';
import { createWriter } from '../../src/supervisor/writer.ts';
import { createSystemdExecutor } from '../../src/systemd/executor.ts';
import { type Rig, within } from './rig.ts';

export class InProcessDaemon {
  readonly context: Context;
  readonly supervisor: Supervisor;
  readonly store: Store;
  readonly #hub: Hub;
  readonly #tree: string;

  private constructor(context: Context, tree: string) {
    this.context = context;
    this.store = context.store;
    this.#hub = context.hub;
    this.#tree = tree;
    this.supervisor = createSupervisor(context);
  }

  static async start(
    { config, workspace, tree, env }: Rig,
    fault: Faults = noFaults,
    kind: Executor['kind'] = 'systemd',
  ): Promise<InProcessDaemon> {
    const { directories, file } = config;
    const { state, attempts, sessions, exits, decisions, token, runtime, cache } = directories;
    for (const directory of [state, attempts, sessions, exits, decisions, token, runtime, cache]) {
      ensureDirectory(directory);
    }
    const entropy = systemEntropy;
    const hub = createHub((error) => {
      throw error;
    });
    const store = openStore(directories.store, workspace, new Date(entropy.now()).toISOString());
    const common = { workspace, exits, exitRecordScript: exitRecordScript() };
    const executor =
      kind === 'systemd'
        ? createSystemdExecutor({
            ...common,
            busAddress: config.busAddress,
            userRuntime: directories.userRuntime,
            entropy,
            report: () => undefined,
          })
        : createDirectExecutor({
            ...common,
            directory: directories.direct,
            runtimeDirectory: runtime,
            keeperScript: keeperScript(),
            searchPath: env['PATH'] ?? '',
          });
    await executor.connect();
    const node = process.execPath;
    const daemon = new InProcessDaemon(
      {
        workspace,
        runtimeInstanceId: uuidv7(entropy),
        store,
        writer: createWriter(store, hub, entropy),
        executor,
        entropy,
        hub,
        log: pino({ level: 'silent' }),
        settings: {
          attemptsDirectory: attempts,
          sessionsDirectory: sessions,
          exitsDirectory: exits,
          decisionsDirectory: decisions,
          temporaryDirectory: directories.temporary,
          runtimeDirectory: runtime,
          node,
          wrapper: WRAPPER,
          piCommand: bundledPi(node),
          runnerEnvironment: { ...config.runnerEnvironment, PATH: env['PATH'] ?? '' },
          keys: config.keys,
          captureBytes: file.captureBytes,
          umask: config.umask,
          limits: file.limits,
          starvingMs: STARVING_MS,
          policies: DEFAULT_POLICIES,
          home: config.home,
        },
        fault,
      },
      tree,
    );
    store.recordInstance({
      id: daemon.context.runtimeInstanceId,
      pid: process.pid,
      version: 'test',
      startedAt: new Date(entropy.now()).toISOString(),
    });
    await recover(daemon.context, createCensus(daemon.context, daemon.supervisor));
    daemon.supervisor.start();
    return daemon;
  }

  /** Submits in the rig's work tree and returns the id. */
  submit(input: Partial<StartWorkUnitInput> & { prompt?: string; argv?: string[] }): string {
    const request = startWorkUnitSchema.parse({
      ownerId: 'test',
      cwd: this.#tree,
      ...(input.argv ? { runnerId: 'command' } : { runnerId: 'pi', model: 'lab/scripted' }),
      ...input,
    });
    return this.supervisor.submit(request, { actor: 'user' }).workUnit.id;
  }

  workUnit(id: string): WorkUnitRow {
    const row = this.store.workUnits.get(id);
    if (!row) throw new Error(`there is no work unit ${id}`);
    return row;
  }

  attempts(id: string): AttemptRow[] {
    return this.store.attempts.listByWorkUnit(id);
  }

  /** Resolves with the first event of the work unit, from now on, that passes. */
  next(id: string, what: string, passes: (event: EventRow) => boolean): Promise<EventRow> {
    const { promise, resolve } = Promise.withResolvers<EventRow>();
    const stop = this.#hub.subscribe((events) => {
      const found = events.find((event) => event.workUnitId === id && passes(event));
      if (found) resolve(found);
    });
    return within(what, promise).finally(stop);
  }

  /** Resolves with the row once the work unit has ended. */
  async end(id: string): Promise<WorkUnitRow> {
    const ended = (): boolean => TERMINAL_STATUSES.has(this.workUnit(id).status);
    if (!ended()) await this.next(id, `the end of ${id}`, ended);
    return this.workUnit(id);
  }

  async close(): Promise<void> {
    await this.supervisor.close();
    await this.context.executor.close();
    this.store.close();
  }
}
