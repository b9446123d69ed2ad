/**
 * The runner conformance table: what a runner does, on whichever executor, as everybody
 * who looks from outside sees it. Both tiers that boot an executor run all of it.
 */
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView, StartWorkUnitInput, WorkUnitView } from '../../src/api/schemas.ts';
import { noFaults } from '../../src/supervisor/faults.ts';
import { ASKING } from './conformance-approvals.ts';
import { InProcessDaemon } from './core-daemon.ts';
import { appears, type Outcome, type Rig, script, sequenceIsWhole } from './rig.ts';

type Input = Partial<StartWorkUnitInput> & { prompt?: string; argv?: string[] };
export type ExecutorKind = 'systemd' | 'direct';
type Runner = 'pi' | 'command';

/** The same shell line as a command, or as the one tool call of a Pi run that then says `said`. */
function work(runner: Runner, line: string, said = 'Finished'): Input {
  if (runner === 'command') return { argv: ['sh', '-c', line] };
  return { prompt: script(`bash ${line}`, `say ${said}`) };
}

/** Waits until the line has printed `up`. */
async function up(rig: Rig, id: string): Promise<void> {
  const printed = ({ type, data }: EventView): boolean =>
    type === 'stdout_delta' || (type === 'tool.update' && String(data['delta']).includes('up'));
  await rig.waitForEvent(id, printed, 'the work to be under way');
}

async function opened(rig: Rig, id: string): Promise<{ nonce: string; pid: number }> {
  const event = await rig.waitForEvent(
    id,
    ({ type }) => type === 'attempt.opened',
    'the first spool line',
  );
  return { nonce: String(event.data['nonce']), pid: Number(event.data['pid']) };
}

const record = async (rig: Rig, nonce: string): Promise<void> =>
  appears(path.join(rig.exitRecords(), `${nonce}.json`));

const verdict = ({ status, errorCode }: WorkUnitView): readonly unknown[] => [status, errorCode];

/**
 * Processes that live and work in the directory, zombies not counted. By that and not by a pid
 * they wrote down: in a nest they have other ones.
 */
function livingIn(directory: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => {
      try {
        const isDead = /\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
        return !isDead && readlinkSync(`/proc/${pid}/cwd`) === directory;
      } catch {
        return false; // No process, or gone by now.
      }
    });
}

/** Waits and touches nothing, and says so. */
const WAITS = 'echo up; until [ -e go ]; do sleep 0.1; done; echo after';
const DEAF = 'trap "" TERM; echo up; while :; do sleep 0.1; done';

export interface Scene {
  readonly rig: Rig;
  readonly runner: Runner;
  readonly executor: ExecutorKind;
}

export interface Scenario {
  readonly name: string;
  readonly only?: Runner;
  run(scene: Scene): Promise<Outcome>;
  /** Status and code of the work unit. */
  readonly ends: (runner: Runner) => readonly [string, string | null];
  also?(outcome: Outcome, scene: Scene): void;
}

const letGo = (rig: Rig): void => writeFileSync(path.join(rig.tree, 'go'), '');

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'succeeds',
    run: ({ rig, runner }) => rig.runToEnd(work(runner, 'echo made > made.txt; echo out')),
    ends: () => ['succeeded', null],
    also: ({ workUnit: { attempts } }, { rig, executor }) => {
      expect(readFileSync(path.join(rig.tree, 'made.txt'), 'utf8')).toBe('made\n');
      const [attempt] = attempts;
      expect(attempt).toMatchObject({
        executor,
        result: { verdict: 'ok' },
        exit: { serviceResult: 'success', exitCode: 'exited', exitStatus: '0' },
      });
      expect(attempt?.unit).toMatch(/^outlive-.*-1\.service$/);
      expect(attempt?.invocationId).toMatch(/^[0-9a-f]{32}$/);
      expect(attempt?.exit?.invocationId).toBe(attempt?.invocationId);
    },
  },
  {
    name: 'fails',
    run: ({ rig, runner }) =>
      rig.runToEnd(runner === 'pi' ? { prompt: script('status 401') } : work(runner, 'exit 3')),
    ends: (runner) => ['failed', runner === 'pi' ? 'provider_auth' : 'exit_code'],
    also: ({ workUnit: { attempts } }) => {
      expect(attempts[0]?.exit).toMatchObject({ serviceResult: 'exit-code', exitStatus: '1' });
    },
  },
  {
    name: 'is cancelled',
    run: async ({ rig, runner }) => {
      const { id } = await rig.submit(work(runner, WAITS));
      await up(rig, id);
      await rig.client.cancelWorkUnit(id, { reason: 'enough' });
      return rig.outcome(id);
    },
    ends: () => ['cancelled', 'cancelled_by_request'],
    also: ({ events }) => {
      expect(events.at(-1)).toMatchObject({ type: 'work_unit.cancelled', actor: 'user' });
      expect(events.some(({ type }) => type === 'attempt.told_to_stop')).toBe(true);
    },
  },
  {
    name: 'is interrupted, by a daemon of this process: no endpoint does that yet',
    run: async ({ rig, runner, executor }) => {
      const inside = await InProcessDaemon.start(rig, noFaults, executor);
      const id = inside.submit(work(runner, WAITS));
      try {
        await inside.next(id, 'its start', ({ type }) => type === 'started');
        inside.supervisor.interrupt(id, { actor: 'user', reason: 'another prompt' });
        await inside.end(id);
      } finally {
        await inside.close();
      }
      await rig.startDaemon();
      return rig.outcome(id);
    },
    ends: () => ['cancelled', 'interrupted_by_prompt'],
  },
  {
    name: 'answers its cancellation with a success that comes too late',
    only: 'command',
    run: async ({ rig, runner }) => {
      const line = 'trap "exit 0" TERM; echo up; while :; do sleep 0.1; done';
      const { id } = await rig.submit(work(runner, line));
      await up(rig, id);
      await rig.client.cancelWorkUnit(id);
      return rig.outcome(id);
    },
    ends: () => ['cancelled', 'cancelled_by_request'],
  },
  {
    name: 'is stopped from outside, with SIGTERM to its wrapper',
    run: async ({ rig, runner }) => {
      const { id } = await rig.submit(work(runner, WAITS));
      await up(rig, id);
      process.kill((await opened(rig, id)).pid, 'SIGTERM');
      return rig.outcome(id);
    },
    ends: () => ['cancelled', 'stopped_externally'],
  },
  {
    name: 'meets its hard timeout',
    run: ({ rig, runner }) =>
      rig.runToEnd({
        ...work(runner, WAITS),
        timeoutPolicy: { hardTimeoutMs: 6_000, cancelGraceMs: 1_000 },
      }),
    ends: () => ['failed', 'hard_timeout'],
  },
  {
    name: 'has a wrapper that is killed with SIGKILL',
    run: async ({ rig, runner }) => {
      const { id } = await rig.submit(work(runner, WAITS));
      await up(rig, id);
      process.kill((await opened(rig, id)).pid, 'SIGKILL');
      return rig.outcome(id);
    },
    ends: () => ['failed', 'killed'],
  },
  {
    name: 'ignores SIGTERM and is killed when its grace is over; T51 #20899',
    run: async ({ rig, runner }) => {
      const line = `sh -c '${DEAF}'`;
      const { id } = await rig.submit({
        ...work(runner, line),
        timeoutPolicy: { cancelGraceMs: 1_500 },
      });
      await up(rig, id);
      await rig.client.cancelWorkUnit(id);
      return rig.outcome(id);
    },
    ends: () => ['cancelled', 'cancelled_by_request'],
    also: (_outcome, { rig }) => {
      expect(livingIn(rig.tree)).toEqual([]);
    },
  },
  {
    name: 'leaves children in sessions of their own, which are named and killed; T47 PR#3318',
    run: ({ rig, runner }) => {
      const left = 'setsid sh -c "touch left; exec sleep 600" >/dev/null 2>&1 </dev/null &';
      return rig.runToEnd(work(runner, `${left} until [ -e left ]; do sleep 0.05; done; echo out`));
    },
    ends: () => ['succeeded', null],
    also: ({ workUnit: { attempts } }, { rig }) => {
      expect(livingIn(rig.tree)).toEqual([]);
      expect(JSON.stringify(attempts[0]?.result)).toContain('"sleep"');
    },
  },
  {
    name: 'prints a lot',
    only: 'command',
    run: ({ rig, runner }) =>
      rig.runToEnd(work(runner, 'head -c 3000000 /dev/zero | tr "\\0" x; echo; echo the end')),
    ends: () => ['succeeded', null],
    also: ({ workUnit: { id, attempts } }, { rig }) => {
      const file = path.join(
        rig.config.directories.attempts,
        id,
        attempts[0]?.id ?? '',
        'stdout.log',
      );
      const kept = readFileSync(file, 'utf8');
      expect(kept.startsWith('xxx')).toBe(true);
      expect(kept.endsWith('the end\n')).toBe(true);
      expect(kept.length).toBeLessThan(1_200_000);
    },
  },
  {
    name: 'outlives its daemon: SIGKILL, and the next one takes it up; T13 claude-code#79569, T68 supervisor#925',
    run: async ({ rig, runner }) => {
      const first = await rig.startDaemon();
      const { id } = await rig.submit(work(runner, WAITS));
      await up(rig, id);
      first.kill('SIGKILL');
      await first.exited;
      await rig.startDaemon();
      await rig.waitForEvent(id, ({ type }) => type === 'attempt.reattached', 're-attachment');
      letGo(rig);
      return rig.outcome(id);
    },
    ends: () => ['succeeded', null],
    also: ({ workUnit: { attempts }, events }) => {
      expect(attempts).toHaveLength(1);
      expect(attempts[0]).toMatchObject({ reattached: 1 });
      expect(events.filter(({ type }) => type === 'attempt.opened')).toHaveLength(1);
    },
  },
  {
    name: 'ends while no daemon lives; T60 containerd#6771',
    run: async ({ rig, runner }) => {
      const first = await rig.startDaemon();
      const { id } = await rig.submit(work(runner, WAITS));
      await up(rig, id);
      const { nonce } = await opened(rig, id);
      first.kill('SIGKILL');
      await first.exited;
      letGo(rig);
      await record(rig, nonce);
      await rig.startDaemon();
      return rig.outcome(id);
    },
    ends: () => ['succeeded', null],
  },
  {
    name: 'is at its deadline with its daemon dead and its wrapper stopped by SIGSTOP',
    only: 'command',
    run: async ({ rig, runner }) => {
      const first = await rig.startDaemon();
      const { id } = await rig.submit({
        ...work(runner, WAITS),
        timeoutPolicy: { hardTimeoutMs: 4_000, cancelGraceMs: 0 },
      });
      await up(rig, id);
      const { nonce, pid } = await opened(rig, id);
      first.kill('SIGKILL');
      process.kill(pid, 'SIGSTOP');
      await record(rig, nonce);
      await rig.startDaemon();
      return rig.outcome(id);
    },
    ends: () => ['failed', 'hard_timeout'],
    also: ({ workUnit: { attempts } }) => {
      expect(attempts[0]).toMatchObject({ decidedByRule: 5, exit: { serviceResult: 'timeout' } });
    },
  },
  {
    name: 'whose daemon dies between the start and its record runs once; T59 containerd#6860',
    run: async ({ rig, runner }) => {
      const first = await rig.startDaemon({ fault: 'start_answered' });
      const { id } = await rig.submit(work(runner, 'echo x >> runs; sleep 1'));
      await first.exited;
      await rig.startDaemon();
      return rig.outcome(id);
    },
    ends: () => ['succeeded', null],
    also: ({ workUnit: { attempts } }, { rig }) => {
      expect(attempts).toHaveLength(1);
      expect(readFileSync(path.join(rig.tree, 'runs'), 'utf8')).toBe('x\n');
    },
  },
  ...ASKING,
];

/** Scenarios that start their daemon themselves: the others get one. */
const OWN_DAEMON = /daemon/;

/** Resolves when nothing of the attempt is left. @throws when something is. */
async function nothingIsLeft(rig: Rig, executor: ExecutorKind): Promise<void> {
  if (executor === 'systemd') return rig.unitsAreGone();
  const registry = rig.config.directories.direct;
  // The daemon lets go after it committed the end; no event of its own tells when.
  for (let looked = 0; looked < 100; looked += 1) {
    if (!readdirSync(registry).some((name) => name.endsWith('.service.json'))) return;
    await pause(50);
  }
  throw new Error('an ended attempt was not let go');
}

/**
 * Runs the whole table on one executor. The names are written out where it is called, so
 * that a reader sees what is proved there; one that is missing or unknown fails.
 */
export function conformance(
  executor: ExecutorKind,
  make: () => Promise<Rig>,
  names: readonly string[],
): void {
  let rig: Rig;
  beforeEach(async () => {
    rig = await make();
  });
  afterEach(async () => {
    await rig.end();
  });
  it('is all there', () => {
    expect(names).toEqual(SCENARIOS.map(({ name }) => name));
  });
  describe.each(['command', 'pi'] as const)(`%s on the ${executor} executor`, (runner) => {
    const table = SCENARIOS.filter(({ only }) => only === undefined || only === runner);
    it.each(table)('$name', async (scenario) => {
      const scene = { rig, runner, executor };
      if (!OWN_DAEMON.test(scenario.name)) await rig.startDaemon();
      const outcome = await scenario.run(scene);
      expect(verdict(outcome.workUnit), outcome.workUnit.errorMessage ?? '').toEqual(
        scenario.ends(runner),
      );
      expect(sequenceIsWhole(outcome.events)).toBe(true);
      scenario.also?.(outcome, scene);
      await nothingIsLeft(rig, executor);
    });
  });
}
