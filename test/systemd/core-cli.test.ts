/** The commands of the durable core against the real daemon on real systemd. */
import { existsSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AttemptView, WorkUnitView } from '../../src/api/schemas.ts';
import type { DryRun, Explanation } from '../../src/api/schemas-explain.ts';
import type {
  ActivePage,
  AdmissionView,
  LeasePage,
  ReconcileView,
  SemaphorePage,
} from '../../src/api/schemas-runtime.ts';
import { SseParser } from '../../src/client/sse-parser.ts';
import { type CliResult, cli, startCli } from '../support/cli.ts';
import { type DaemonProcess, Rig, script, systemctl } from '../support/rig.ts';

let rig: Rig;
let daemon: DaemonProcess;
beforeAll(async () => {
  rig = await Rig.create();
  daemon = await rig.startDaemon();
});
afterAll(async () => {
  await rig.end();
});

const COMMAND = ['run', '--runner', 'command', '--detach'];
const parsed = async <Answer>(...args: readonly string[]): Promise<Answer> => {
  const result = await cli(rig, [...args, '--json']);
  expect(result.status, result.stderr).toBe(0);
  return JSON.parse(result.stdout) as Answer;
};
const ok = async (...args: readonly string[]): Promise<CliResult> => {
  const result = await cli(rig, args);
  expect(result.status, result.stderr).toBe(0);
  return result;
};
const statusOf = async (handle: string): Promise<string> =>
  (await rig.client.getWorkUnit(handle)).status;
const place = (name: string): string => path.join(rig.tree, name);
/** A command that runs until a file is there. */
const until = (file: string): string[] => ['sh', '-c', `until [ -e ${file} ]; do sleep 0.05; done`];
const running = (handle: string) =>
  rig.waitForEvent(handle, ({ type }) => type === 'started', `${handle} to run`);

describe('outlive retry', () => {
  it('gives failed work another attempt, with a unit of its own', async () => {
    const flag = place('may-pass');
    const argv = ['sh', '-c', `test -e ${flag} || exit 3`];
    expect((await rig.runToEnd({ handle: 'flaky', argv })).workUnit.status).toBe('failed');
    const explained = await ok('explain', 'flaky');
    expect(explained.stdout).toContain('outlive retry flaky');
    expect(explained.stdout).toMatch(/rule\s+11|rule\s+12/);
    writeFileSync(flag, '');
    const retried = await parsed<WorkUnitView>('retry', 'flaky');
    expect(retried.errorCode).toBeNull();
    await rig.waitForEvent('flaky', ({ type }) => type === 'work_unit.succeeded', 'its success');
    const { items } = await parsed<{ items: AttemptView[] }>('attempts', 'flaky');
    expect(items.map(({ status }) => status)).toEqual(['failed', 'succeeded']);
    expect(items.map(({ unit }) => unit.slice(-10))).toEqual(['-1.service', '-2.service']);
    const table = await ok('attempts', 'flaky');
    expect(table.stdout).toContain('succeeded');
    expect((await cli(rig, ['retry', 'flaky'])).status).toBe(5);
    expect((await cli(rig, ['retry', 'nobody'])).status).toBe(3);
  });
});

describe('outlive pause and resume', () => {
  it('hold queued work over a restart of the daemon and let it go again; row 217, T30 #1326', async () => {
    expect(await parsed<AdmissionView>('pause')).toMatchObject({ admission: 'paused' });
    await ok(...COMMAND, '--handle', 'held', '--', 'true');
    expect((await ok('explain', 'held')).stdout).toContain('the workspace is paused');
    daemon.kill('SIGTERM');
    await daemon.exited;
    daemon = await rig.startDaemon();
    expect(await statusOf('held')).toBe('queued');
    const refused = await cli(rig, [...COMMAND, '--no-queue', '--', 'true']);
    expect(refused.status).toBe(5);
    expect(refused.stderr).toContain('resource_busy');
    await ok('resume');
    expect((await rig.outcome('held')).workUnit.status).toBe('succeeded');
  });
});

describe('outlive drain --wait', () => {
  it('returns once what runs has ended, and starts nothing meanwhile', async () => {
    const go = place('drain-go');
    await ok(...COMMAND, '--handle', 'last', '--', ...until(go));
    await running('last');
    const drain = startCli(rig, ['drain', '--wait']);
    await drain.until(/1 attempt runs on/);
    await ok(...COMMAND, '--handle', 'later', '--', 'true');
    expect(await statusOf('last')).toBe('running');
    writeFileSync(go, '');
    const result = await drain.ended;
    expect(result.status, result.stderr).toBe(0);
    expect(result.stderr).toContain('Nothing runs.');
    expect(await statusOf('last')).toBe('succeeded');
    expect(await statusOf('later')).toBe('queued');
    await ok('resume');
    expect((await rig.outcome('later')).workUnit.status).toBe('succeeded');
  });

  it('with nothing running returns at once, and twice is fine', async () => {
    for (const _ of [1, 2]) expect((await ok('drain', '--wait')).stderr).toContain('Nothing runs.');
    await ok('resume');
  });
});

describe('a blocked unit', () => {
  it('is explained, and starts when what it waits for is released', async () => {
    const go = place('blocked-go');
    const exclusive = ['--exclusive', '--lease', 'external_workspace:shop'];
    await ok(...COMMAND, ...exclusive, '--handle', 'holder', '--', ...until(go));
    await running('holder');
    await ok(...COMMAND, '--exclusive', '--handle', 'waiter', '--', 'true');
    const { items } = await parsed<LeasePage>('leases');
    expect(items.map(({ resourceType, resourceKey }) => `${resourceType} ${resourceKey}`)).toEqual(
      expect.arrayContaining([`bound_path ${rig.tree}`, 'external_workspace shop']),
    );
    const explanation = await parsed<Explanation>('explain', 'waiter');
    expect(explanation.waiting).toMatchObject({ why: 'blocked', heldBy: 'holder' });
    const text = (await ok('explain', 'waiter')).stdout;
    expect(text).toContain(`bound_path ${rig.tree} is held by holder`);
    const active = await parsed<ActivePage>('active');
    expect(active.items).toMatchObject([{ handle: 'holder', status: 'running' }]);
    const slots = await parsed<SemaphorePage>('slots');
    expect(slots.items.find(({ resourceKey }) => resourceKey === 'command')).toMatchObject({
      used: 1,
      holders: [{ handle: 'holder' }],
    });
    expect((await ok('stuck')).stderr).toContain('Nothing is stuck.');
    const report = await parsed<ReconcileView>('reconcile', 'holder');
    expect(report.items).toMatchObject([{ before: 'running', after: 'running', action: 'looked' }]);
    expect((await ok('reconcile')).stdout).toContain('its unit was read');
    writeFileSync(go, '');
    expect((await rig.outcome('waiter')).workUnit.status).toBe('succeeded');
  });
});

describe('outlive run --dry-run', () => {
  it('prints the properties the unit then has', async () => {
    const go = place('dry-go');
    const args = ['--runner', 'command', '--handle', 'dry', '--hard-timeout', '90s'];
    const dry = await ok('run', ...args, '--dry-run', '--json', '--', ...until(go));
    const { unit } = JSON.parse(dry.stdout) as DryRun;
    expect(existsSync(path.join(rig.config.directories.attempts, 'dry'))).toBe(false);
    expect((await cli(rig, ['show', 'dry'])).status).toBe(3);
    await ok('run', ...args, '--detach', '--', ...until(go));
    await running('dry');
    const { attempts } = await rig.client.getWorkUnit('dry');
    expect(attempts[0]?.unit).toBe(unit.name);
    const wanted = new Map(unit.properties.map(({ name, value }) => [name, value]));
    const shown = async (name: string): Promise<string> =>
      systemctl('show', '--value', '-p', name, unit.name);
    for (const name of ['Type', 'Description', 'Slice', 'KillMode', 'SyslogIdentifier']) {
      expect(await shown(name)).toBe(wanted.get(name));
    }
    expect(wanted.get('RuntimeMaxUSec')).toBe('90000000');
    expect(await shown('RuntimeMaxUSec')).toBe('1min 30s');
    // The same variables; the nonce is made anew.
    const names = (text: string): string[] => [...text.matchAll(/([A-Z_]+)=/g)].map(String).sort();
    expect(names(await shown('Environment'))).toEqual(names(wanted.get('Environment') ?? ''));
    writeFileSync(go, '');
    await rig.outcome('dry');
  });
});

describe('POST /runs', () => {
  it('streams a real Pi run to its end, first frame the run', async () => {
    const body = JSON.stringify({
      prompt: script('bash echo hi', 'say Done'),
      model: 'lab/scripted',
      cwd: rig.tree,
    });
    const messages = await new Promise<{ event: string; data: string }[]>((resolve, reject) => {
      const request = http.request({
        socketPath: rig.config.directories.apiSocket,
        path: '/runs',
        method: 'POST',
        headers: { 'content-type': 'application/json' },
      });
      request.on('error', reject);
      request.on('response', (response) => {
        const parser = new SseParser();
        const all: { event: string; data: string }[] = [];
        response.on('data', (chunk: Buffer) => all.push(...parser.push(chunk)));
        response.on('end', () => resolve(all));
        response.on('error', reject);
      });
      request.end(body);
    });
    expect(messages[0]?.event).toBe('run');
    const { runId } = JSON.parse(messages[0]?.data ?? '') as { runId: string };
    expect(messages.at(-1)?.event).toBe('work_unit.succeeded');
    expect(messages.map(({ event }) => event)).toContain('tool.end');
    expect(await statusOf(runId)).toBe('succeeded');
  });
});

describe('outlive channels', () => {
  it('are made by their first work, paused, resumed and changed', async () => {
    await ok(...COMMAND, '--channel', 'eng', '--handle', 'inlane', '--', 'true');
    expect((await rig.outcome('inlane')).workUnit).toMatchObject({ channelId: 'eng' });
    await ok('channels', 'pause', 'eng');
    const refused = await cli(rig, [...COMMAND, '--channel', 'eng', '--', 'true']);
    expect(refused).toMatchObject({ status: 5 });
    expect(refused.stderr).toContain('outlive channels resume eng');
    await ok('channels', 'resume', 'eng');
    await ok('channels', 'set', 'eng', '--max-concurrent-runs', '3', '--on-newer', 'block');
    expect(await parsed<{ items: object[] }>('channels', 'list')).toMatchObject({
      items: [{ id: 'eng', status: 'active', maxConcurrentRuns: 3, onNewerSubject: 'block' }],
    });
    expect((await cli(rig, ['channels', 'pause', 'nobody'])).status).toBe(3);
  });
});
