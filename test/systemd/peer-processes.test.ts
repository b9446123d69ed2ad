/** Processes, namespaces and unit files, as they went wrong for others in public; real systemd. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { DAEMON_NODE_FLAGS } from '../../src/layout.ts';
import { Rig, ROOT, systemctl } from '../support/rig.ts';

const run = promisify(execFile);
let rig: Rig;
let undo: (() => unknown)[] = [];
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  for (const step of undo.reverse()) await step();
  undo = [];
  await rig.end();
});

const file = (name: string): string => path.join(rig.tree, name);
const read = (name: string): string => readFileSync(file(name), 'utf8').trim();
const isUp = ({ type, data }: EventView): boolean =>
  type === 'stdout_delta' && JSON.stringify(data).includes('up');

describe('a unit file that was left behind under the next name', () => {
  it('T04 systemd PR#27127: is passed over, and the work runs under the name after it', async () => {
    const transient = path.join(rig.config.directories.userRuntime, 'systemd/transient');
    mkdirSync(transient, { recursive: true });
    const left = path.join(transient, `outlive-${rig.workspace}-again-1.service`);
    writeFileSync(left, '[Service]\nExecStart=/bin/true\n');
    undo.push(async () => {
      rmSync(left, { force: true });
      await systemctl('daemon-reload');
    });
    await systemctl('daemon-reload');
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['sh', '-c', 'echo ran >> runs'],
      handle: 'again',
    });
    expect([workUnit.status, workUnit.errorMessage]).toEqual(['succeeded', null]);
    expect(workUnit.attempts.at(-1)?.unit).toBe(`outlive-${rig.workspace}-again-2.service`);
    expect(read('runs')).toBe('ran');
  });
});

/** The daemon in a unit with a /tmp of its own, as a hardened unit file gives it. */
async function hardenedDaemon(unit: string): Promise<void> {
  const settings = Object.entries(rig.env).map(([name, value]) => `--setenv=${name}=${value}`);
  const options = ['--user', '--quiet', `--unit=${unit}`, '-p', 'PrivateTmp=yes'];
  // Without user namespaces a user manager could not make it.
  options.push('-p', 'PrivateUsers=yes', '-p', 'KillMode=control-group');
  const program = [process.execPath, ...DAEMON_NODE_FLAGS, path.join(ROOT, 'dist/main.js')];
  await run('systemd-run', [...options, ...settings, ...program]);
  undo.push(() => systemctl('stop', unit).catch(() => undefined));
  await expect
    .poll(() => rig.client.runtime().then(({ status }) => status, String), {
      timeout: 30_000,
      interval: 100,
    })
    .toBe('ready');
}

describe('a daemon in a unit with a mount namespace of its own', () => {
  it('T14 agentric PR#121, T15 agentboard PR#212: takes everything of its own along when it goes, and nothing of an attempt', async () => {
    const unit = `peer-${rig.workspace}.service`;
    await hardenedDaemon(unit);
    const mark = `/tmp/${rig.workspace}.mark`;
    undo.push(() => rmSync(mark, { force: true }));
    const { id } = await rig.submit({
      argv: [
        'sh',
        '-c',
        `echo x > ${mark}; echo up; until [ -e go ]; do sleep 0.05; done; cat ${mark} > seen`,
      ],
    });
    await rig.waitForEvent(id, isUp, 'the work to be under way');
    const [attempt] = (await rig.client.getWorkUnit(id)).attempts;
    const show = (of: string, name: string): Promise<string> => systemctl('show', '-P', name, of);
    const mountsOf = async (of: string): Promise<string> =>
      readlinkSync(`/proc/${await show(of, 'MainPID')}/ns/mnt`);
    expect(await mountsOf(attempt?.unit ?? ''), 'of the attempt').not.toBe(await mountsOf(unit));
    expect(existsSync(mark), 'the machine’s own /tmp').toBe(true);
    const group = await show(unit, 'ControlGroup');
    expect(attempt?.controlGroup?.startsWith(`${group}/`)).toBe(false);
    await systemctl('stop', unit);
    expect(existsSync(path.join('/sys/fs/cgroup', group)), 'the daemon’s own group').toBe(false);

    await rig.startDaemon();
    writeFileSync(file('go'), '');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit).toMatchObject({ status: 'succeeded', attempts: [{ reattached: 1 }] });
    expect(read('seen')).toBe('x');
  });
});

/** A port of loopback that nobody has; null when the given one is taken. */
async function bind(port: number): Promise<number | null> {
  const server = createServer();
  const { promise, resolve } = Promise.withResolvers<number | null>();
  server.once('error', () => resolve(null));
  server.listen(port, '127.0.0.1', () => {
    const address = server.address();
    resolve(typeof address === 'object' ? (address?.port ?? null) : null);
  });
  const bound = await promise;
  if (bound !== null) await new Promise((closed) => server.close(closed));
  return bound;
}

describe('what an attempt leaves running', () => {
  it('T64 pm2#6084: gives its port back with the end of the run', async () => {
    const port = await bind(0);
    const server = file('server.cjs');
    writeFileSync(
      server,
      `require('node:net').createServer().listen(${port}, '127.0.0.1', () =>
        require('node:fs').writeFileSync('listens', ''));`,
    );
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: [
        'sh',
        '-c',
        `trap "" TERM HUP; setsid ${process.execPath} ${server} </dev/null >/dev/null 2>&1 &
         until [ -e listens ]; do sleep 0.05; done`,
      ],
    });
    expect(workUnit.status).toBe('succeeded');
    expect(existsSync(file('listens'))).toBe(true);
    expect(await bind(port ?? 0)).toBe(port);
  });

  it('T85 PostHog#102542: is dead before a retry of what timed out begins', async () => {
    const line = [
      'if [ -e first ]; then',
      '  if kill -0 "$(cat first)" 2>/dev/null; then echo beside > second; else echo alone > second; fi',
      '  exit 0',
      'fi',
      'trap "" TERM',
      `setsid sh -c 'trap "" TERM; echo $$ > first.new; mv first.new first; while :; do sleep 1; done' &`,
      'while :; do sleep 1; done',
    ].join('\n');
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['sh', '-c', line],
      timeoutPolicy: { hardTimeoutMs: 3_000, cancelGraceMs: 500 },
    });
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'hard_timeout']);
    await rig.client.retryWorkUnit(workUnit.id);
    const isEnd = ({ type }: EventView): boolean => type === 'work_unit.succeeded';
    await rig.waitForEvent(workUnit.id, isEnd, 'the end of the retry');
    expect(read('second')).toBe('alone');
  });
});
