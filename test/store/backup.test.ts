/** Copies of a store in use, and a copy in the place of the store. */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import { STORE_FILE } from '../../src/store/open.ts';
import { restore } from '../../src/store/restore.ts';
import { acquireRuntimeLock } from '../../src/store/runtime-lock.ts';
import type { Store } from '../../src/store/store.ts';
import {
  AT,
  cleanUp,
  insertAttempt,
  insertWorkUnit,
  newEvent,
  open,
  refusal,
  temporaryDirectory,
} from './rig.ts';

afterEach(cleanUp);

const never = (): boolean => false;
const copy = (store: Store, target: string, force = false) =>
  store.backup(target, { force, mark: 'test', stopped: never });

function fill(store: Store, events: number): string {
  const id = insertWorkUnit(store);
  store.write(() =>
    store.events.append(
      id,
      Array.from({ length: events }, () => newEvent(id, { text: 'x'.repeat(200) })),
    ),
  );
  return id;
}

interface Place {
  readonly state: string;
  readonly store: string;
  readonly attempts: string;
  readonly workspace: string;
  readonly backup: string;
}

function place(): Place {
  const state = temporaryDirectory();
  const attempts = path.join(state, 'attempts');
  mkdirSync(attempts);
  return {
    state,
    attempts,
    store: path.join(state, 'store'),
    workspace: 'main',
    backup: path.join(temporaryDirectory(), 'copy.db'),
  };
}

describe('a backup', () => {
  it('says what the copy holds, read from the copy; private, one file, nothing beside it', async () => {
    const { store: directory, backup } = place();
    const store = open(directory);
    const id = fill(store, 7);
    insertAttempt(store, id);
    fill(store, 5);
    const report = await copy(store, backup);
    expect(report).toMatchObject({
      file: backup,
      workUnits: 2,
      liveWorkUnits: 2,
      attempts: 1,
      events: 12,
      position: 12,
      workspaceId: 'main',
      schemaVersion: store.schemaVersion,
      bytes: statSync(backup).size,
    });
    expect(statSync(backup).mode & 0o777).toBe(0o600);
    expect(readdirSync(path.dirname(backup))).toEqual(['copy.db']);
    const db = new Database(backup, { readonly: true });
    expect(db.prepare('SELECT count(*) FROM runtime_events').pluck().get()).toBe(12);
    db.close();
  });

  it('is taken while others write: they hardly wait, and the copy is whole', async () => {
    const { store: directory, backup } = place();
    const store = open(directory);
    for (let round = 0; round < 40; round++) fill(store, 1_000);
    const id = insertWorkUnit(store);
    let done = false;
    const running = copy(store, backup).finally(() => {
      done = true;
    });
    const waits: number[] = [];
    let appended = 0;
    while (!done) {
      const before = performance.now();
      await new Promise((resolve) => setImmediate(resolve));
      store.write(() => store.events.append(id, [newEvent(id)]));
      appended += 1;
      waits.push(performance.now() - before);
    }
    const { events } = await running;
    expect(appended).toBeGreaterThan(20);
    expect(events).toBeGreaterThan(40_000);
    expect(events).toBeLessThanOrEqual(40_000 + appended);
    const worst = Math.max(...waits);
    // Generous: the machine does other things. A copy in one go would hold it for much longer.
    expect(worst).toBeLessThan(500);
  });

  it('replaces a file only when told to, and never anything else', async () => {
    const { store: directory, backup } = place();
    const store = open(directory);
    fill(store, 1);
    writeFileSync(backup, 'precious');
    await expect(copy(store, backup)).rejects.toMatchObject({ code: 'target_exists' });
    expect(readFileSync(backup, 'utf8')).toBe('precious');
    expect((await copy(store, backup, true)).events).toBe(1);
    const link = path.join(path.dirname(backup), 'link.db');
    symlinkSync(backup, link);
    await expect(copy(store, link, true)).rejects.toMatchObject({ code: 'target_exists' });
    await expect(copy(store, path.dirname(backup), true)).rejects.toMatchObject({
      code: 'target_exists',
    });
    expect(readdirSync(path.dirname(backup)).sort()).toEqual(['copy.db', 'link.db']);
  });

  it.each([
    ['the store itself', (at: Place) => path.join(at.store, STORE_FILE), 'backup_failed'],
    ['a relative path', () => 'copy.db', 'invalid_request'],
    ['a missing directory', (at: Place) => `${at.backup}/no/copy.db`, 'backup_failed'],
  ])('is refused for %s', async (_what, target, code) => {
    const at = place();
    const store = open(at.store);
    await expect(copy(store, target(at), true)).rejects.toMatchObject({ code });
    expect(store.events.window().last).toBe(0);
  });

  it('that is given up leaves nothing', async () => {
    const { store: directory, backup } = place();
    const store = open(directory);
    for (let round = 0; round < 10; round++) fill(store, 500);
    const options = { force: false, mark: 'test', stopped: () => true };
    await expect(store.backup(backup, options)).rejects.toMatchObject({ code: 'shutting_down' });
    expect(readdirSync(path.dirname(backup))).toEqual([]);
  });

  it('sweeps what a daemon that died in one left', async () => {
    const { store: directory, backup } = place();
    const stale = path.join(path.dirname(backup), '.copy.db.earlier.partial');
    writeFileSync(stale, '');
    await copy(open(directory), backup);
    expect(existsSync(stale)).toBe(false);
  });
});

describe('a restore', () => {
  async function backedUp(): Promise<{ at: Place; id: string }> {
    const at = place();
    const store = open(at.store);
    const id = fill(store, 3);
    await copy(store, at.backup);
    fill(store, 4); // Lost by the restore.
    store.close();
    return { at, id };
  }

  it('brings the copy back, keeps the old store, takes no queued work', async () => {
    const { at, id } = await backedUp();
    const report = restore(at.backup, at, AT);
    expect(report).toMatchObject({ workUnits: 1, events: 3, unknownAttempts: [] });
    const store = open(at.store);
    expect(store.workUnits.get(id)?.lastSeq).toBe(3);
    expect(store.events.page(id, 0, 10)).toHaveLength(3);
    expect(store.channels.admission()).toBe('paused');
    const old = new Database(report.replaced ?? '', { readonly: true });
    expect(old.prepare('SELECT count(*) FROM runtime_events').pluck().get()).toBe(7);
    old.close();
    expect(statSync(path.join(at.store, STORE_FILE)).mode & 0o777).toBe(0o600);
  });

  it('makes every position given out before it one from behind the floor, and another epoch', async () => {
    const { at, id } = await backedUp();
    const before = open(at.store);
    const { last } = before.events.window();
    const epoch = before.retention.epoch();
    before.close();
    restore(at.backup, at, AT);
    const store = open(at.store);
    const window = store.events.window();
    expect(window.floor).toBeGreaterThan(last);
    expect(window.floor).toBe(window.last);
    expect(store.retention.epoch()).not.toBe(epoch);
    const [event] = store.write(() => store.events.append(id, [newEvent(id)]));
    expect(event).toMatchObject({ seq: 4, position: window.last + 1 });
    // Again: further on still.
    store.close();
    restore(at.backup, at, '2026-01-02T03:04:06.000Z');
    expect(open(at.store).events.window().last).toBeGreaterThanOrEqual(window.last);
  });

  it('is refused while a daemon owns the workspace', async () => {
    const { at } = await backedUp();
    const lock = acquireRuntimeLock(at.state, 'main');
    try {
      expect(refusal(() => restore(at.backup, at, AT)).code).toBe('workspace_owned');
    } finally {
      lock.release();
    }
    expect(open(at.store).events.window().last).toBe(7);
  });

  it.each<[string, (backup: string, at: Place) => string | Place, RegExp]>([
    ['a file that is not there', (backup) => `${backup}.no`, /no such file/],
    [
      'something else',
      (backup) => {
        writeFileSync(backup, 'precious');
        return backup;
      },
      /not a database/,
    ],
    [
      'a database of somebody else',
      (backup) => {
        const file = `${backup}.other`;
        const db = new Database(file);
        db.exec('CREATE TABLE t (x)');
        db.close();
        return file;
      },
      /no store of outlive/,
    ],
    [
      'a copy that was cut off',
      (backup) => {
        truncateSync(backup, 20_000);
        return backup;
      },
      /malformed|not whole|Page|page/,
    ],
    [
      'a copy with damaged pages',
      (backup) => {
        const bytes = readFileSync(backup);
        bytes.fill(0x5a, 8_192, 40_000);
        writeFileSync(backup, bytes);
        return backup;
      },
      /malformed|Tree|page|corrupt/i,
    ],
    [
      'a newer schema',
      (backup) => {
        const db = new Database(backup);
        db.prepare("INSERT INTO migrations VALUES (999, '999_later.sql', 'x', 'y')").run();
        db.close();
        return backup;
      },
      /schema 999/,
    ],
    ['another workspace', (_, at) => ({ ...at, workspace: 'lab' }), /workspace "main"/],
  ])('refuses %s and leaves the store as it is', async (_what, spoil, said) => {
    const { at } = await backedUp();
    const spoiled = spoil(at.backup, at);
    const [file, target] = typeof spoiled === 'string' ? [spoiled, at] : [at.backup, spoiled];
    const error = refusal(() => restore(file, target, AT));
    expect(error.code).toBe('backup_unusable');
    expect(error.message).toMatch(said);
    expect(readdirSync(at.store).filter((name) => !/^outlive\.db(-wal|-shm)?$/.test(name))).toEqual(
      [],
    );
    expect(open(at.store).events.window().last).toBe(7);
  });

  it('tells which attempts on the disk the copy knows nothing of', async () => {
    const { at, id } = await backedUp();
    mkdirSync(path.join(at.attempts, id, 'later'), { recursive: true });
    mkdirSync(path.join(at.attempts, '.trash', 'x'), { recursive: true });
    expect(restore(at.backup, at, AT).unknownAttempts).toEqual([`${id}/later`]);
  });

  it('tells which live work has no files here', async () => {
    const at = place();
    const store = open(at.store);
    const [here, gone] = [fill(store, 1), fill(store, 1)];
    for (const id of [here, gone]) {
      const attempt = insertAttempt(store, id, { unit: `outlive-main-${id}-1.service` });
      const row = store.workUnits.get(id);
      store.write(
        () => row && store.workUnits.move(row, 'running', { activeAttemptId: attempt }, AT),
      );
      if (id === here) mkdirSync(path.join(at.attempts, id, attempt), { recursive: true });
    }
    const handle = store.workUnits.get(gone)?.handle;
    await copy(store, at.backup);
    store.close();
    expect(restore(at.backup, at, AT).withoutFiles).toEqual([handle]);
  });

  it('takes the place of a damaged store, which is kept', async () => {
    const { at } = await backedUp();
    truncateSync(path.join(at.store, STORE_FILE), 1_000);
    expect(refusal(() => open(at.store)).code).toBe('store_damaged');
    const { replaced } = restore(at.backup, at, AT);
    expect(statSync(replaced ?? '').size).toBe(1_000);
    expect(open(at.store).workUnits.list).toBeTypeOf('function');
  });

  it('that was cut off in the swap starts nothing, and is finished by running it again', async () => {
    const { at } = await backedUp();
    // As it is when the power goes after the old store was removed and before the new one is there.
    const file = path.join(at.store, STORE_FILE);
    copyFileSync(at.backup, `${file}.restored`);
    renameSync(file, `${file}.replaced-x`);
    expect(refusal(() => open(at.store)).message).toContain('run outlive restore again');
    expect(restore(at.backup, at, AT)).toMatchObject({ events: 3, replaced: null });
    expect(open(at.store).events.window().last).toBeGreaterThan(7);
    expect(existsSync(`${file}.restored`)).toBe(false);
  });

  it('leaves the copy as it was, also a read-only one', async () => {
    const { at } = await backedUp();
    chmodSync(at.backup, 0o400);
    const before = readFileSync(at.backup);
    restore(at.backup, at, AT);
    expect(readFileSync(at.backup).equals(before)).toBe(true);
  });

  it('of a store from before it could shrink makes one that can', async () => {
    const { at } = await backedUp();
    const db = new Database(at.backup);
    db.pragma('auto_vacuum = NONE');
    db.exec('VACUUM');
    expect(db.pragma('auto_vacuum', { simple: true })).toBe(0);
    db.close();
    restore(at.backup, at, AT);
    expect(open(at.store).retention.canShrink()).toBe(true);
  });
});
