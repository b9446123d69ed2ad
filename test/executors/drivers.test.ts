/** Drivers on both executors: real daemon, real wrapper, a folder of tasks. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DriverDetail, DriverSpecInput } from '../../src/api/schemas-drivers.ts';
import { cli } from '../support/cli.ts';
import { untilDriverIs } from '../support/driver-watch.ts';
import { cutPower } from '../support/power.ts';
import { appears, type Rig, said } from '../support/rig.ts';
import { EXECUTOR, tierRig } from '../support/tier-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await tierRig();
});
afterEach(() => rig.end());

const inTree = (...names: string[]): string => path.join(rig.tree, ...names);
const sh = (text: string): string[] => ['sh', '-c', text];

/** Names what is in todo/ and not in done/. */
const CENSUS = `cd todo || exit 1
for file in *.task; do
  [ -e "$file" ] || continue
  name=\${file%.task}
  [ -e "../done/$name" ] && continue
  printf '{"handle":"%s","subject":"task:%s","vars":{"name":"%s"}}\\n' "$name" "$name" "$name"
done`;
const WORK =
  'echo "$OUTLIVE_HANDLE $OUTLIVE_SUBJECT $OUTLIVE_ATTEMPT" >> log; sleep 0.2; echo ok > "done/$OUTLIVE_VAR_NAME"';

const folder = (more: Partial<DriverSpecInput> = {}): DriverSpecInput => ({
  census: { argv: sh(CENSUS) },
  run: { argv: sh(WORK) },
  outcome: { verify: { argv: sh('test -f "done/$OUTLIVE_HANDLE"') } },
  cwd: rig.tree,
  ...more,
});

const nameOf = (n: number): string => `t${String(n).padStart(2, '0')}`;

function tasks(count: number): string[] {
  mkdirSync(inTree('todo'));
  mkdirSync(inTree('done'));
  const names = Array.from({ length: count }, (_, n) => nameOf(n));
  for (const name of names) writeFileSync(inTree('todo', `${name}.task`), '');
  return names;
}

const logLines = (): string[] => readFileSync(inTree('log'), 'utf8').trim().split('\n');

const driverIs = (name: string, what: string, passes: (driver: DriverDetail) => boolean) =>
  untilDriverIs(rig, name, what, passes);

describe('a folder of tasks', () => {
  it('S2: each is worked once and verified, through two daemons that are killed; row 146, row 301, row 303', async () => {
    const names = tasks(30);
    const first = await rig.startDaemon();
    await rig.client.putDriver('tasks', folder({ every: 1_000, jitter: 0, maxAtOnce: 8 }));
    await appears(inTree('done', nameOf(2)));
    first.kill('SIGKILL');
    await first.exited;
    const second = await rig.startDaemon();
    await appears(inTree('done', nameOf(14)));
    second.kill('SIGKILL');
    await second.exited;
    await rig.startDaemon();
    const { subjects } = await driverIs(
      'tasks',
      'all tasks to be verified',
      (driver) => driver.subjects.filter(({ outcome }) => outcome === 'satisfied').length === 30,
    );
    expect(logLines().sort()).toEqual(names.map((name) => `${name} task:${name} 1`));
    expect(readdirSync(inTree('done')).sort()).toEqual(names);
    expect(subjects.map(({ status, attempts }) => `${status} ${attempts}`)).toEqual(
      names.map(() => 'succeeded 1'),
    );
    const ledger = await rig.client.ledger({ driver: 'tasks', limit: 100 });
    expect(ledger.items.map(({ handle }) => handle).sort()).toEqual(names);
    expect(ledger.items.map(({ unit }) => unit).sort()).toEqual(
      names.map((name) => `outlive-${rig.workspace}-${name}-1.service`),
    );
    expect(
      new Set(
        ledger.items.map(
          ({ result, rc, outcome, verify }) => `${result} ${rc} ${outcome} ${verify}`,
        ),
      ),
    ).toEqual(new Set(['exit 0 satisfied ok']));
  });
});

/** Prints a line for each of these subjects. */
const printing = (...subjects: readonly string[]): string[] =>
  sh(
    subjects
      .map(
        (subject) =>
          `echo '${JSON.stringify({ subject, handle: subject, vars: { Branch: 'x y' } })}'`,
      )
      .join('\n') || 'true',
  );

async function ticked(name: string): Promise<DriverDetail> {
  const { tick } = await rig.client.tickDriver(name);
  return driverIs(name, `the end of tick ${tick}`, ({ last }) => last?.tick === tick);
}
const whatOf = ({ last }: DriverDetail): string[] =>
  last?.subjects.map(({ subject, code }) => `${subject} ${code ?? 'started'}`) ?? [];

describe('what is run', () => {
  it('is told what it is about, as is the census, with variables of driver and files', async () => {
    await rig.startDaemon();
    writeFileSync(inTree('vars'), 'OF_FILE=from the file\n');
    const dump = 'env | grep -E "^(OUTLIVE_|OF_)" | grep -v ^OUTLIVE_MARK= | sort';
    await rig.client.putDriver('tasks', {
      census: { argv: sh(`${dump} > census; ${printing('a').at(-1)}`) },
      run: { argv: sh(`${dump} > run`) },
      outcome: { outputs: ['run'] },
      cwd: rig.tree,
      environment: { OF_DRIVER: '1' },
      environmentFiles: [inTree('vars')],
    });
    const { subjects } = await ticked('tasks').then(() =>
      driverIs('tasks', 'the end of a', (driver) => driver.subjects[0]?.outcome === 'satisfied'),
    );
    expect(subjects).toMatchObject([{ handle: 'a', status: 'succeeded' }]);
    const lines = (name: string): string[] => readFileSync(inTree(name), 'utf8').trim().split('\n');
    const common = [
      'OF_DRIVER=1',
      'OF_FILE=from the file',
      'OUTLIVE_ATTEMPT=1',
      'OUTLIVE_DRIVER=tasks',
    ];
    const workspace = `OUTLIVE_WORKSPACE=${rig.workspace}`;
    expect(lines('census')).toEqual([
      ...common,
      'OUTLIVE_HANDLE=tasks-census-1',
      'OUTLIVE_TICK=1',
      workspace,
    ]);
    expect(lines('run')).toEqual([
      ...common,
      'OUTLIVE_HANDLE=a',
      'OUTLIVE_SUBJECT=a',
      'OUTLIVE_VAR_BRANCH=x y',
      workspace,
    ]);
  });

  it('row 302: is ended by the deadline that the driver has', async () => {
    await rig.startDaemon();
    const spec = { census: { argv: printing('a') }, run: { argv: ['sleep', '60'] }, cwd: rig.tree };
    await rig.client.putDriver('tasks', { ...spec, hardTimeoutMs: 1_500 });
    await ticked('tasks');
    await driverIs('tasks', 'the end of a', (driver) => driver.subjects[0]?.status === 'failed');
    const { items } = await rig.client.ledger({ driver: 'tasks' });
    expect(items).toMatchObject([{ handle: 'a', result: 'timeout', rc: 124 }]);
  });

  it('is an agent where there is a prompt, with its places filled', async () => {
    await rig.startDaemon();
    await rig.client.putDriver('issues', {
      census: { argv: printing('issue-7') },
      run: {
        prompt: 'Do as the script says.\n#script\nsay About {{subject}}, {{vars.Branch}}.\n#end',
        model: 'lab/scripted',
      },
      cwd: rig.tree,
    });
    await ticked('issues');
    const { subjects } = await driverIs('issues', 'the end', (driver) =>
      ['succeeded', 'failed'].includes(driver.subjects[0]?.status ?? ''),
    );
    const id = subjects[0]?.workUnitId ?? '';
    const transcript = (await rig.client.artifacts(id)).items.find(
      ({ kind }) => kind === 'transcript',
    );
    let text = '';
    for await (const piece of rig.client.artifactContent(transcript?.id ?? '')) text += piece;
    expect(text).toContain('About issue-7, x y.');
  });
});

describe('a subject whose work somebody stopped', () => {
  it('S2: a halt holds the subject until it is resumed, over a restart of the daemon', async () => {
    const first = await rig.startDaemon();
    const spec = { census: { argv: printing('a') }, run: { argv: sh('touch runs; sleep 60') } };
    await rig.client.putDriver('tasks', { ...spec, cwd: rig.tree });
    expect(whatOf(await ticked('tasks'))).toEqual(['a started']);
    await appears(inTree('runs'));
    expect(whatOf(await ticked('tasks'))).toEqual(['a busy']);
    await rig.client.cancelWorkUnit('a');
    await rig.outcome('a');
    first.kill('SIGKILL');
    await first.exited;
    await rig.startDaemon();
    expect(whatOf(await ticked('tasks'))).toEqual(['a held']);
    expect((await rig.client.resumeDriver('tasks', 'a')).released).toEqual(['a']);
    expect(whatOf(await ticked('tasks'))).toEqual(['a started']);
  });
});

describe('a census that goes down with its machine', () => {
  it('is asked again, and the tick is the same', async () => {
    const first = await rig.startDaemon();
    const census = `echo asked >> asked; test $(wc -l < asked) -gt 1 || sleep 60; ${printing('a').at(-1)}`;
    await rig.client.putDriver('tasks', {
      census: { argv: sh(census) },
      run: { argv: ['true'] },
      cwd: rig.tree,
    });
    const { tick } = await rig.client.tickDriver('tasks');
    await appears(inTree('asked'));
    first.kill('SIGKILL');
    await first.exited;
    await cutPower(rig, EXECUTOR);
    await rig.startDaemon();
    const driver = await driverIs('tasks', 'the end of the tick', ({ last }) => last !== null);
    expect(driver).toMatchObject({ failures: 0, last: { tick, ok: true, started: 1 } });
    expect(readFileSync(inTree('asked'), 'utf8')).toBe('asked\nasked\n');
  });

  it('goes on, or is asked again, when its daemon ends in order', async () => {
    const first = await rig.startDaemon();
    await rig.client.putDriver('tasks', {
      census: {
        argv: sh(`touch asked; until test -e again; do sleep 0.05; done; ${printing('a').at(-1)}`),
      },
      run: { argv: ['true'] },
      cwd: rig.tree,
    });
    await rig.client.tickDriver('tasks');
    await appears(inTree('asked'));
    first.kill('SIGTERM');
    await first.exited;
    writeFileSync(inTree('again'), '');
    await rig.startDaemon();
    const driver = await driverIs('tasks', 'the end of the tick', ({ last }) => last !== null);
    expect(driver).toMatchObject({ failures: 0, last: { tick: 1, ok: true, started: 1 } });
  });
});

describe('on the command line', () => {
  it('a tick says what was started, what was not, and why; a failing census is FAILING', async () => {
    await rig.startDaemon();
    const add = ['driver', 'add', 'tasks', '--max-at-once', '1', '--run', 'sleep 60'];
    const census = printing('a', 'b').at(-1) ?? '';
    expect((await cli(rig, [...add, '--census', census])).status).toBe(0);
    const tick = await cli(rig, ['driver', 'tick', 'tasks']);
    expect(tick.status, tick.stderr).toBe(0);
    expect(tick.stdout).toContain('tasks: tick 1 found 2 and started 1\n');
    expect(tick.stdout).toMatch(/started +a +a\n +skipped +b +b +full: .*\(1 of 1\)/);
    await cli(rig, [...add, '--replace', '--census', 'echo no token >&2; exit 3']);
    const failed = await cli(rig, ['driver', 'tick', 'tasks']);
    expect(failed.status).toBe(1);
    expect(failed.stdout).toBe(
      'tasks: tick 2 failed. The census tasks-census-2 failed (status 3): no token\n',
    );
    expect((await cli(rig, ['driver', 'list'])).stdout).toContain('FAILING');
    const { status, problems } = await rig.client.runtime();
    expect(status).toBe('degraded');
    expect(problems.join('\n')).toContain(
      'driver_failing: tasks: The census tasks-census-2 failed',
    );
  });
});

describe('drivers of config.json', () => {
  it('X24: are there after a start; one whose prompt file is missing says so at its tick', async () => {
    const file = rig.config.directories.configFile;
    mkdirSync(path.dirname(file), { recursive: true });
    const promptFile = inTree('p.md');
    const driver = {
      census: { argv: ['true'] },
      run: { promptFile },
      cwd: rig.tree,
      every: 3_600_000,
    };
    writeFileSync(file, JSON.stringify({ drivers: { nightly: driver } }));
    const daemon = await rig.startDaemon();
    const { source, last } = await driverIs('nightly', 'a tick', ({ failures }) => failures === 1);
    expect(source).toBe('file');
    expect(last?.message).toContain(`the prompt file ${promptFile} does not exist`);
    await said(daemon, 'a tick of a driver failed');
    const refused = await cli(rig, ['driver', 'remove', 'nightly']);
    expect(refused.status).toBe(5);
  });
});
