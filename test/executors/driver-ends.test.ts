/** How the runs of a driver end, and what the ledger has of it: real daemon, real processes, both executors. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DriverSpecInput } from '../../src/api/schemas-drivers.ts';
import type { LedgerLineView } from '../../src/api/schemas-ledger.ts';
import { type CliResult, cli } from '../support/cli.ts';
import { untilDriverIs } from '../support/driver-watch.ts';
import { opsScript } from '../support/installed.ts';
import { appears, type DaemonProcess, type Rig } from '../support/rig.ts';
import { EXECUTOR, tierRig } from '../support/tier-rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await tierRig();
});
afterEach(() => rig.end());

const inTree = (name: string): string => path.join(rig.tree, name);
const sh = (text: string): string[] => ['sh', '-c', text];
const CENSUS = sh(`echo '{"handle":"issue42","subject":"github:acme/app#42"}'`);
const SUBJECT = 'github:acme/app#42';
const WAITS = 'touch up; until [ -e go ]; do sleep 0.05; done';

const driver = (run: string, more: Partial<DriverSpecInput> = {}): DriverSpecInput => ({
  census: { argv: CENSUS },
  run: { argv: sh(run) },
  outcome: { verify: { argv: sh('echo verified >> verified') } },
  cwd: rig.tree,
  ...more,
});

/** Makes it, and begins a tick. */
async function begin(run: string, more: Partial<DriverSpecInput> = {}): Promise<void> {
  await rig.client.putDriver('issues', driver(run, more));
  await rig.client.tickDriver('issues');
}

const settled = (state: string) =>
  untilDriverIs(rig, 'issues', `an outcome that is ${state}`, (of) =>
    of.subjects.some(({ outcome }) => outcome === state),
  );

async function ledger(): Promise<readonly LedgerLineView[]> {
  const { items } = await rig.client.ledger({ driver: 'issues', order: 'oldest' });
  return items;
}

async function killed(daemon: DaemonProcess): Promise<void> {
  daemon.kill('SIGKILL');
  await daemon.exited;
}

const halt = (...args: readonly string[]): Promise<CliResult> =>
  opsScript(rig, 'halt', ['--workspace', rig.workspace, ...args], {
    env: { PATH: process.env['PATH'] ?? '' },
  });

describe('the run of a driver', () => {
  it('S2: spawn name, leases and exit propagation: named after its handle, holds its subject, rc 3 in the ledger, and is verified; row 301, row 303, row 031', async () => {
    await rig.startDaemon();
    await begin(`${WAITS}; exit 3`);
    await appears(inTree('up'));
    const { items } = await rig.client.leases();
    expect(
      items.map(({ resourceType, resourceKey }) => [resourceType, resourceKey]),
    ).toContainEqual(['external_subject', SUBJECT]);
    writeFileSync(inTree('go'), '');
    await settled('satisfied');
    expect(await ledger()).toMatchObject([
      {
        handle: 'issue42',
        driver: 'issues',
        subject: SUBJECT,
        unit: `outlive-${rig.workspace}-issue42-1.service`,
        executor: EXECUTOR,
        result: 'exit',
        rc: 3,
        verify: 'ok',
        reattached: false,
      },
    ]);
  });

  it('S2: timeout normalisation with verify skipped: 124, and nothing verified; row 304', async () => {
    await rig.startDaemon();
    await begin('trap "exit 0" TERM; while :; do sleep 0.05; done', { hardTimeoutMs: 1_500 });
    await settled('skipped');
    expect(await ledger()).toMatchObject([{ result: 'timeout', rc: 124, verify: 'skipped' }]);
    const all = await rig.client.ledger({ all: true });
    expect(all.items.map(({ handle }) => handle).sort()).toEqual(['issue42', 'issues-census-1']);
  });

  it('S2: startup re-attach: nothing is started again, and one line is marked reattached; row 306, row 143, row 144', async () => {
    const first = await rig.startDaemon();
    await begin(`echo x >> runs; ${WAITS}`);
    await appears(inTree('up'));
    await killed(first);
    await rig.startDaemon();
    const { tick } = await rig.client.tickDriver('issues');
    const { last } = await untilDriverIs(
      rig,
      'issues',
      'the end of the second tick',
      (of) => of.last?.tick === tick,
    );
    expect(last?.subjects.map(({ code }) => code)).toEqual(['busy']);
    writeFileSync(inTree('go'), '');
    await settled('satisfied');
    expect(await ledger()).toMatchObject([
      { handle: 'issue42', result: 'exit', rc: 0, verify: 'ok', reattached: true },
    ]);
  });

  it('X29: can be looked at while it lives: its output, its events, the ledger', async () => {
    await rig.startDaemon();
    await begin(`echo working; ${WAITS}`);
    await appears(inTree('up'));
    expect((await cli(rig, ['ledger', '--json', '--all'])).stdout).toContain('issues-census-1');
    expect((await cli(rig, ['logs', 'issue42'])).stdout).toContain('working');
    expect((await cli(rig, ['events', 'issue42'])).stdout).toContain('started');
    writeFileSync(inTree('go'), '');
    await settled('satisfied');
  });
});

describe('halt', () => {
  it('S2: halt stops the run of a driver by its handle, also with the daemon dead: stopped in the ledger, its subject held; row 149', async () => {
    const first = await rig.startDaemon();
    await begin(WAITS);
    await appears(inTree('up'));
    await killed(first);
    expect(await halt('issue42')).toMatchObject({ status: 0 });
    await rig.startDaemon();
    await settled('skipped');
    expect(await ledger()).toMatchObject([{ result: 'stopped', rc: 130, verify: 'skipped' }]);
    expect((await rig.client.driver('issues')).holds).toMatchObject([{ subject: SUBJECT }]);
  });

  it('S2: --drivers stops them, and no person’s run; row 150', async () => {
    await rig.startDaemon();
    const { id } = await rig.submit({ handle: 'mine', argv: sh('touch mine; sleep 600') });
    await appears(inTree('mine'));
    await begin(WAITS);
    await appears(inTree('up'));
    expect((await halt('--drivers')).stdout).toBe(
      `stopped outlive-${rig.workspace}-issue42-1.service\n`,
    );
    await settled('skipped');
    expect(await ledger()).toMatchObject([{ result: 'stopped' }]);
    expect((await rig.client.getWorkUnit(id)).status).toBe('running');
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
  });
});
