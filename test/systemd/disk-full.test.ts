/** The disk under the state directory is full: said clearly, nothing lost, and over when there is room. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WRAPPER_EXIT } from '../../src/domain/attempt-files.ts';
import { defaultTimeouts } from '../../src/domain/work-unit.ts';
import { STORE_FILE } from '../../src/store/open.ts';
import { refused, send } from '../support/api-http.ts';
import { cli } from '../support/cli.ts';
import { createdBody, delivery, SECRET } from '../support/linear-webhooks.ts';
import { appears, Rig, ROOT, said, sequenceIsWhole, within } from '../support/rig.ts';

/** A private host has a small file system of the user's own; a live one has none to spare. */
const SMALL_DISK = '/run/outlive-host/small';
const HAS_DISK = existsSync(SMALL_DISK);

let rig: Rig;
let state: string;
let filler: string;
beforeEach(async () => {
  if (!HAS_DISK) return;
  state = mkdtempSync(path.join(SMALL_DISK, 'state-'));
  filler = path.join(SMALL_DISK, 'filler');
  rig = await Rig.create({ stateHome: state });
});
afterEach(async () => {
  if (!HAS_DISK) return;
  await rig.end();
  for (const left of [state, filler]) rmSync(left, { recursive: true, force: true });
});

/** Writes until nothing more fits. */
function fill(): void {
  const block = Buffer.alloc(64 * 1024);
  expect(() => {
    for (;;) writeFileSync(filler, block, { flag: 'a' });
  }).toThrow('ENOSPC');
}

/** The store's log gives back what it had taken: a daemon that fits into it would simply start. */
function withoutRoom(): void {
  const { store } = rig.config.directories;
  const db = new Database(path.join(store, STORE_FILE));
  db.pragma('wal_checkpoint(TRUNCATE)');
  db.close();
  rmSync(path.join(store, 'outlive.reserve'), { force: true });
}

describe.skipIf(!HAS_DISK)('a full disk (needs the small disk of a private host)', () => {
  it('at launch: a typed refusal or a typed failure, and work goes on when there is room', async () => {
    await rig.startDaemon();
    const before = await rig.runToEnd({ argv: ['echo', 'before'] });
    expect(before.workUnit.status).toBe('succeeded');
    fill();
    const result = await cli(rig, ['run', '--runner', 'command', '--', 'echo', 'no room']);
    expect(result.status).toBe(1);
    expect(result.stderr).toContain('disk_full');
    rmSync(filler);
    const after = await rig.runToEnd({ argv: ['echo', 'after'] });
    expect(after.workUnit.status).toBe('succeeded');
    // Nothing of what was there is lost, and nothing was left half done.
    const kept = await rig.outcome(before.workUnit.id);
    expect(kept.events).toEqual(before.events);
    expect(sequenceIsWhole(after.events)).toBe(true);
    await rig.unitsAreGone();
    expect((await rig.client.listWorkUnits({ active: true })).items).toEqual([]);
  });

  it('for retention: it has room of its own, and makes more', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({
      argv: ['sh', '-c', 'head -c 500000 /dev/urandom | base64 -w 1000'],
    });
    await rig.unitsAreGone();
    const { attempts, state: directory } = rig.config.directories;
    await appears(path.join(directory, 'store', 'outlive.reserve'));
    fill();
    const result = await cli(rig, ['gc', '--older-than', '0s', '--json']);
    expect(result.status, result.stdout + result.stderr).toBe(0);
    expect(JSON.parse(result.stdout)).toMatchObject({ workUnits: { age: 1 }, problems: [] });
    expect(existsSync(path.join(attempts, workUnit.id))).toBe(false);
    // The disk is as full as before, but for what went.
    expect((await rig.runToEnd({ argv: ['true'] })).workUnit.status).toBe('succeeded');
  });

  it('in a backup: a typed refusal, no half file, and the daemon works on', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({ argv: ['echo', 'before'] });
    const copy = path.join(SMALL_DISK, 'copy.db');
    fill();
    const result = await cli(rig, ['backup', copy]);
    expect(result.status).toBe(1);
    expect(result.stderr).toContain('disk_full');
    expect(readdirSync(SMALL_DISK).filter((name) => name.includes('copy.db'))).toEqual([]);
    rmSync(filler);
    expect((await cli(rig, ['backup', copy])).status).toBe(0);
    rmSync(copy);
    expect((await rig.client.getWorkUnit(workUnit.id)).status).toBe('succeeded');
    expect((await rig.runToEnd({ argv: ['true'] })).workUnit.status).toBe('succeeded');
  });

  it('when the wrapper opens its spool: it exits with the status that says so, and runs nothing', () => {
    const directory = path.join(state, 'attempt');
    mkdirSync(directory);
    const timeouts = defaultTimeouts('task_run');
    const launch = {
      ...{ version: 1, workspace: 'w', workUnitId: 'u', attemptId: 'a', attemptNumber: 1 },
      ...{ handle: 'h', unit: 'u.service', nonce: 'n', runnerId: 'command', timeouts },
      runner: { kind: 'command', argv: ['touch', path.join(rig.tree, 'ran')] },
      ...{ cwd: rig.tree, environment: {}, credentialVariables: [], captureBytes: 4096, umask: 63 },
      controlSocket: path.join(rig.base, 'control.sock'),
    };
    writeFileSync(path.join(directory, 'launch.json'), JSON.stringify(launch));
    fill();
    const wrapper = path.join(ROOT, 'dist/attempt/main.js');
    const env = { ...rig.env, OUTLIVE_NONCE: 'n' };
    const { status, stderr } = spawnSync(process.execPath, [wrapper, directory], { env });
    expect([status, String(stderr)]).toEqual([
      WRAPPER_EXIT.diskFull,
      expect.stringMatching(/ENOSPC|no space/i),
    ]);
    expect(existsSync(path.join(rig.tree, 'ran'))).toBe(false);
  });

  it('in the middle of a run: the daemon lives, and the outcome is stored when there is room', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', `echo up; until [ -e ${rig.tree}/go ]; do sleep 0.1; done; exit 0`],
      timeoutPolicy: { heartbeatIntervalMs: 200 },
    });
    await rig.waitForEvent(id, (event) => event.type === 'stdout_delta', 'its output');
    fill();
    writeFileSync(path.join(rig.tree, 'go'), '');
    // The daemon cannot store the end now; that it still answers is what counts.
    await rig.unitsAreDead();
    expect((await rig.client.runtime()).pid).toBe(daemon.pid);
    rmSync(filler);
    const { workUnit, events } = await rig.outcome(id);
    // Whether its last words still fitted is the disk's to say; what it was is told either way.
    expect(`${workUnit.status} ${workUnit.errorCode}`).toMatch(
      /^(succeeded null|failed (disk_full|spool_lost))$/,
    );
    expect(sequenceIsWhole(events)).toBe(true);
    await rig.unitsAreGone();
  });

  it('at a start: refused with the reason and by name, and a full daemon without a restart when there is room', async () => {
    const before = await rig.startDaemon();
    const first = await rig.runToEnd({ argv: ['echo', 'before'] });
    before.kill('SIGKILL');
    await before.exited;
    withoutRoom();
    fill();
    const daemon = await rig.startDaemon();
    const target = { socketPath: rig.config.directories.apiSocket };
    const answer = await send(target, { path: '/runtime' });
    expect(refused(answer)).toMatchObject({ status: 507, code: 'disk_full' });
    const second = rig.spawnDaemon();
    expect(await within('the second to refuse', second.exited)).toBe(5);
    expect(second.output()).toContain(`pid ${daemon.pid}`);
    rmSync(filler);
    await said(daemon, '"msg":"serving"');
    const runtime = await rig.client.runtime();
    expect(runtime.pid).toBe(daemon.pid);
    expect(runtime.tookOver, 'also what was found before there was room').toMatchObject({
      previousPid: before.pid,
    });
    const after = await rig.runToEnd({ argv: ['echo', 'after'] });
    expect(after.workUnit.status).toBe('succeeded');
    expect((await rig.outcome(first.workUnit.id)).events).toEqual(first.events);
    await rig.unitsAreGone();
  });

  it('AC3: for a webhook of Linear’s: not 200, nothing half stored, and taken when it comes again', async () => {
    const secret = path.join(rig.base, 'linear-secret');
    const { configFile, apiSocket, store } = rig.config.directories;
    writeFileSync(secret, SECRET);
    mkdirSync(path.dirname(configFile), { recursive: true });
    writeFileSync(configFile, JSON.stringify({ linear: { webhookSecretFile: secret } }));
    await rig.startDaemon();
    fill();
    // The log has room of its own: each is large, so that it is soon used up.
    const promptContext = 'x'.repeat(500_000);
    const deliver = (session: string) =>
      send({ socketPath: apiSocket }, delivery(createdBody(session, { promptContext })));
    const stored: string[] = [];
    let refusal = await deliver('s0');
    for (let n = 1; refusal.status === 200 && n < 100; n++) {
      stored.push(`s${n - 1}`);
      refusal = await deliver(`s${n}`);
    }
    expect(refused(refusal)).toMatchObject({ status: 503, code: 'store_unavailable' });
    expect(Number(refusal.headers['retry-after'])).toBeGreaterThan(0);
    const sessions = (): unknown[] => {
      const db = new Database(path.join(store, STORE_FILE), { readonly: true });
      const found = db
        .prepare('SELECT session_id FROM linear_deliveries ORDER BY id')
        .pluck()
        .all();
      db.close();
      return found;
    };
    expect(sessions()).toEqual(stored);
    rmSync(filler);
    const late = `s${stored.length}`;
    expect((await deliver(late)).status).toBe(200);
    expect(sessions()).toEqual([...stored, late]);
  });

  it('at the very first start: refused, and all is made when there is room', async () => {
    mkdirSync(rig.config.directories.state, { recursive: true, mode: 0o700 });
    fill();
    const daemon = await rig.startDaemon();
    const target = { socketPath: rig.config.directories.apiSocket };
    expect(refused(await send(target, { path: '/runtime' }))).toMatchObject({ code: 'disk_full' });
    rmSync(filler);
    await said(daemon, '"msg":"serving"');
    const { workUnit } = await rig.runToEnd({ argv: ['echo', 'there'] });
    expect(workUnit.status).toBe('succeeded');
    await rig.unitsAreGone();
  });
});
