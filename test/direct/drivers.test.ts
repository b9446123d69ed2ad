/** Drivers on a machine without systemd: real daemon, real wrapper, a folder of tasks. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DriverDetail, DriverSpecInput } from '../../src/api/schemas-drivers.ts';
import { appears, Rig, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create({ withoutSystemd: true });
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

/** Follows the workspace until the driver is as wanted; looked at after each event. */
async function driverIs(
  name: string,
  what: string,
  passes: (driver: DriverDetail) => boolean,
): Promise<DriverDetail> {
  const stop = new AbortController();
  let found: DriverDetail | null = null;
  const look = async (): Promise<void> => {
    const driver = await rig.client.driver(name);
    if (!passes(driver)) return;
    found = driver;
    stop.abort();
  };
  const watching = rig.client.watchWorkspace({
    onSnapshot: look,
    onEvent: look,
    signal: stop.signal,
  });
  await within(what, watching).finally(() => stop.abort());
  if (!found) throw new Error(`the watch ended without ${what}`);
  return found;
}

describe('a folder of tasks', () => {
  it('S2: each is worked once and verified, through two daemons that are killed', async () => {
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
    expect(new Set(ledger.items.map(({ outcome, verify }) => `${outcome} ${verify}`))).toEqual(
      new Set(['satisfied ok']),
    );
  });
});
