/** Decisions, shutdowns and late ends where the one who decided is gone; real systemd. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { SHUTDOWN_MARGIN_MS } from '../../src/domain/shutdown.ts';
import { STORE_FILE } from '../../src/store/open.ts';
import { fail } from '../../src/supervisor/end.ts';
import { InProcessDaemon } from '../support/core-daemon.ts';
import { type DaemonProcess, Rig, script, systemctl, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const isUp = ({ type, data }: EventView): boolean =>
  (type === 'stdout_delta' || type === 'tool.update') && JSON.stringify(data).includes('up');

async function underWay(input: Parameters<Rig['submit']>[0]): Promise<string> {
  const { id } = await rig.submit(input);
  await rig.waitForEvent(id, isUp, 'the work to be under way');
  return id;
}

const UP = ['sh', '-c', 'echo ran >> runs; echo up; until [ -e go ]; do sleep 0.05; done'];
const DEAF = ['sh', '-c', 'trap "" TERM; echo up; while :; do sleep 0.1; done'];
const runs = (): number =>
  readFileSync(path.join(rig.tree, 'runs'), 'utf8').trim().split('\n').length;

/** All of the unit dies; the exit records are put aside, as if no disk had kept them. */
async function vanish(handle: string): Promise<() => void> {
  const unit = `outlive-${rig.workspace}-${handle}-1.service`;
  await systemctl('kill', '-s', 'KILL', unit);
  await rig.unitsAreDead();
  await systemctl('reset-failed', unit).catch(() => undefined);
  const aside = path.join(rig.base, 'aside');
  mkdirSync(aside, { recursive: true });
  const records = readdirSync(rig.exitRecords());
  for (const name of records) {
    renameSync(path.join(rig.exitRecords(), name), path.join(aside, name));
  }
  return () => {
    for (const name of records) {
      renameSync(path.join(aside, name), path.join(rig.exitRecords(), name));
    }
  };
}

/** What the store says, with no daemon there to ask. */
function ask(sql: string): unknown[] {
  const db = new Database(path.join(rig.config.directories.store, STORE_FILE), { readonly: true });
  try {
    return db.prepare(sql).raw().all();
  } finally {
    db.close();
  }
}

async function kill(daemon: DaemonProcess): Promise<void> {
  daemon.kill('SIGKILL');
  await daemon.exited;
}

describe('a decision that a dead daemon stored', () => {
  it('to cancel is what the end is called, though nothing is left that could tell; row 069, row 072, row 223', async () => {
    const armed = await rig.startDaemon({ fault: 'cancel_intended' });
    const { id, handle } = await rig.submit({ argv: UP, onLost: 'resume' });
    await rig.waitForEvent(id, isUp, 'the work to be under way');
    await rig.client.cancelWorkUnit(id, { reason: 'enough' }).catch(() => undefined);
    await armed.exited;
    await vanish(handle);
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    expect(workUnit.attempts).toHaveLength(1);
    expect(runs()).toBe(1);
  });

  it('to let it fail is carried out, with its code; row 071, row 072', async () => {
    const first = await InProcessDaemon.start(rig);
    const id = first.submit({ argv: UP, timeoutPolicy: { cancelGraceMs: 500 } });
    await first.next(id, 'it to say up', ({ type }) => type === 'stdout_delta');
    // Stored, and the unit is not told.
    vi.spyOn(first.context.executor, 'stop').mockResolvedValue();
    fail(first.context, id, 'idle_timeout', 'silent for a test');
    await first.close();
    expect((await systemctl('show', '-P', 'ActiveState', unitOf(id))).trim()).toBe('active');
    await rig.startDaemon();
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'idle_timeout']);
  });

  it('to cancel what does not end yet reaches it; all it holds stays its own until it is gone; row 223', async () => {
    const armed = await rig.startDaemon({ fault: 'cancel_intended' });
    const id = await underWay({
      argv: DEAF,
      exclusive: true,
      timeoutPolicy: { cancelGraceMs: 30_000 },
    });
    await rig.client.cancelWorkUnit(id, { reason: 'enough' }).catch(() => undefined);
    await armed.exited;
    await rig.startDaemon();
    // It was told and has its grace: until then nothing of it is anybody else's.
    const isTold = ({ type }: EventView): boolean => type === 'attempt.told_to_stop';
    await rig.waitForEvent(id, isTold, 'the order to reach it');
    expect((await rig.client.getWorkUnit(id)).status).toBe('cancelling');
    expect((await rig.client.leases()).items.map(({ workUnitId }) => workUnitId)).toEqual([id]);
    const { id: next } = await rig.submit({ argv: ['true'], exclusive: true });
    await rig.client.reconcileWorkUnit(id);
    expect((await rig.client.getWorkUnit(next)).status).toBe('queued');
    await systemctl('kill', '-s', 'KILL', unitOf(id));
    expect((await rig.outcome(id)).workUnit.errorCode).toBe('cancelled_by_request');
    expect((await rig.outcome(next)).workUnit.status).toBe('succeeded');
  });
});

/** The unit of the only attempt, as the store has it. */
const unitOf = (id: string): string =>
  String(
    (ask(`SELECT unit FROM work_unit_attempts WHERE work_unit_id = '${id}'`)[0] as [string])[0],
  );

describe('an attempt that was replaced', () => {
  it('gives back what it held, and changes nothing when its end is heard of after all; row 088, row 094, row 260', async () => {
    const daemon = await rig.startDaemon();
    const { id, handle } = await rig.submit({ argv: UP, onLost: 'resume', exclusive: true });
    await rig.waitForEvent(id, isUp, 'the work to be under way');
    await kill(daemon);
    const comeBack = await vanish(handle);
    const second = await rig.startDaemon();
    let opened = 0;
    const again = ({ type }: EventView): boolean => type === 'attempt.opened' && ++opened === 2;
    await rig.waitForEvent(id, again, 'the second attempt');
    await kill(second);
    const given = (table: string): unknown[] =>
      ask(`SELECT DISTINCT status FROM ${table} WHERE released_at IS NOT NULL`);
    expect(given('resource_leases')).toEqual([['stale_released']]);
    expect(given('runtime_semaphore_slots')).toEqual([['stale_released']]);
    comeBack();
    await rig.startDaemon();
    const before = await rig.client.getWorkUnit(id);
    expect(before.attempts.map(({ status, errorCode }) => [status, errorCode])).toEqual([
      ['lost', 'no_evidence'],
      ['started', null],
    ]);
    expect((await rig.client.leases()).items.map(({ attemptId }) => attemptId)).toEqual([
      before.attempts[1]?.id,
    ]);
    writeFileSync(path.join(rig.tree, 'go'), '');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.attempts.map(({ status }) => status)).toEqual(['lost', 'succeeded']);
    expect(runs()).toBe(2);
  });
});

describe('a shutdown that suspends', () => {
  const suspendAfter = (graceMs: number) => ({
    env: { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: String(graceMs) },
  });

  it('has freed leases and slots and kept the work when the daemon is gone; row 068, row 070, row 212', async () => {
    const daemon = await rig.startDaemon(suspendAfter(0));
    const pi = await underWay({ prompt: script('bash echo up; sleep 600', 'say Done') });
    const command = await underWay({ argv: UP, onLost: 'resume' });
    daemon.kill('SIGTERM');
    expect(await within('the end of the daemon', daemon.exited), daemon.output()).toBe(0);
    await rig.unitsAreDead();
    const attempts = 'SELECT status, error_code FROM work_unit_attempts ORDER BY id';
    expect(ask(attempts)).toEqual(Array(2).fill(['lost', 'suspended']));
    expect(ask('SELECT id, status FROM work_units ORDER BY created_at')).toEqual([
      [pi, 'queued'],
      [command, 'queued'],
    ]);
    const open = 'SELECT count(*) FROM';
    expect(ask(`${open} resource_leases WHERE released_at IS NULL`)).toEqual([[0]]);
    expect(ask(`${open} runtime_semaphore_slots WHERE released_at IS NULL`)).toEqual([[0]]);
  });

  it('is over within grace and margin, whatever its attempts do; row 207', async () => {
    const graceMs = 1_000;
    const daemon = await rig.startDaemon(suspendAfter(graceMs));
    const id = await underWay({ argv: DEAF, timeoutPolicy: { cancelGraceMs: 120_000 } });
    const began = performance.now();
    daemon.kill('SIGTERM');
    expect(await within('the end of the daemon', daemon.exited)).toBe(0);
    // Ten seconds for what is under way, and for a machine that is busy.
    expect(performance.now() - began).toBeLessThan(graceMs + SHUTDOWN_MARGIN_MS + 10_000);
    expect(daemon.output()).toContain('not over within the margin');
    await systemctl('kill', '-s', 'KILL', unitOf(id));
    await rig.startDaemon();
    await rig.outcome(id);
  });
});

/** A private host has a small file system of the user's own; a live one has none to spare. */
const SMALL_DISK = '/run/outlive-host/small';

describe.skipIf(!existsSync(SMALL_DISK))(
  'a store that cannot be written (needs the small disk of a private host)',
  () => {
    it('costs no line of what runs: starts are refused by name, and the rest follows when it can; row 264', async () => {
      // The store alone is there: spools and logs have all the room there is.
      const small = mkdtempSync(path.join(SMALL_DISK, 'store-'));
      const filler = path.join(SMALL_DISK, 'filler');
      try {
        const { store } = rig.config.directories;
        mkdirSync(path.dirname(store), { recursive: true, mode: 0o700 });
        symlinkSync(small, store);
        const daemon = await rig.startDaemon();
        const numbers = 'until [ -e go ]; do sleep 0.1; done; seq 1 200; echo last';
        const id = await underWay({ argv: ['sh', '-c', `echo up; ${numbers}`] });
        fill(filler);
        // Its write-ahead log has room of its own until that is used up.
        const large = { argv: ['true', ...Array<string>(5).fill('x'.repeat(100_000))] };
        const untilRefused = async (): Promise<void> => {
          for (let tries = 0; tries < 30; tries += 1) await rig.submit(large);
        };
        await expect(untilRefused()).rejects.toMatchObject({ code: 'disk_full' });
        writeFileSync(path.join(rig.tree, 'go'), '');
        await rig.unitsAreDead();
        expect((await rig.client.runtime()).pid, 'it still answers').toBe(daemon.pid);
        expect(daemon.output()).toContain('disk_full');
        rmSync(filler);

        const { workUnit, events } = await rig.outcome(id);
        expect([workUnit.status, workUnit.errorCode]).toEqual(['succeeded', null]);
        const said = events.flatMap(({ type, data }) =>
          type === 'stdout_delta' ? [String(data['text'])] : [],
        );
        const all = Array.from({ length: 200 }, (_, at) => String(at + 1));
        expect(said.join('')).toBe(`${['up', ...all, 'last'].join('\n')}\n`);
        expect((await rig.runToEnd({ argv: ['true'] })).workUnit.status).toBe('succeeded');
      } finally {
        rmSync(filler, { force: true });
        rmSync(small, { recursive: true, force: true });
      }
    });
  },
);

/** Writes until nothing more fits. */
function fill(filler: string): void {
  for (const size of [64 * 1024, 512]) {
    expect(() => {
      for (;;) writeFileSync(filler, Buffer.alloc(size), { flag: 'a' });
    }).toThrow('ENOSPC');
  }
}
