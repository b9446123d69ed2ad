import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, describe, expect, it } from 'vitest';
import { migrate, readMigrations } from '../../src/store/migrate.ts';
import { openDatabase } from '../../src/store/open.ts';
import { resourceStatements } from '../../src/store/resources.ts';
import {
  AT,
  cleanUp,
  open,
  planOf,
  planOfNextQueued,
  raw,
  refusal,
  startChild,
  temporaryDirectory,
} from './rig.ts';

afterEach(cleanUp);

const schemaOf = (db: Database.Database): unknown[] =>
  db.prepare('SELECT type, name, sql FROM sqlite_schema ORDER BY type, name').all();

const columnsOf = (db: Database.Database, table: string): string[] =>
  (db.pragma(`table_info(${table})`) as { name: string }[]).map(({ name }) => name);

/** The columns of an index in order, `-` before a descending one. */
const indexOf = (db: Database.Database, index: string): string[] =>
  (
    db.pragma(`index_xinfo(${index})`) as {
      name: string | null;
      desc: number;
      key: number;
    }[]
  )
    .filter(({ key }) => key === 1)
    .map(({ name, desc }) => `${desc ? '-' : ''}${name}`);

const isUnique = (db: Database.Database, table: string, index: string): boolean =>
  (db.pragma(`index_list(${table})`) as { name: string; unique: number }[]).some(
    (row) => row.name === index && row.unique === 1,
  );

/** The newest migration of this build. */
const KNOWN = readMigrations().at(-1)?.id ?? 0;
/** How many there are. */
const COUNT = readMigrations().length;

describe('row 162: migrations', () => {
  it('are applied once: opening again changes nothing and remembers when it was', () => {
    const directory = temporaryDirectory();
    open(directory).close();
    const db = raw(directory);
    const before = { schema: schemaOf(db), rows: db.prepare('SELECT * FROM migrations').all() };
    const again = openDatabase(directory, '2030-01-01T00:00:00.000Z');
    again.db.close();
    expect(schemaOf(db)).toEqual(before.schema);
    expect(db.prepare('SELECT * FROM migrations').all()).toEqual(before.rows);
    expect(before.rows).toEqual(
      readMigrations().map(({ id, name, checksum }) => ({ id, name, checksum, applied_at: AT })),
    );
  });

  it('are numbered in order, none twice, each with the SHA-256 of its text', () => {
    const migrations = readMigrations();
    const ids = migrations.map(({ id }) => id);
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
    for (const { sql, checksum } of migrations) {
      expect(checksum).toBe(createHash('sha256').update(sql).digest('hex'));
    }
  });

  it('that fail leave the schema as it was', () => {
    const directory = temporaryDirectory();
    const { db } = openDatabase(directory, AT);
    const before = schemaOf(db);
    const broken = {
      id: KNOWN + 1,
      name: `${KNOWN + 1}_broken.sql`,
      sql: 'CREATE TABLE half (id INTEGER); CREATE TABLE half (id INTEGER);',
      checksum: 'x',
    };
    expect(() => migrate(db, AT, [...readMigrations(), broken])).toThrow(/half/);
    expect(schemaOf(db)).toEqual(before);
    expect(migrate(db, AT)).toBe(KNOWN);
    db.close();
  });

  it('that came later are added to what is there', () => {
    const directory = temporaryDirectory();
    const { db } = openDatabase(directory, AT);
    const added = {
      id: KNOWN + 1,
      name: `${KNOWN + 1}_added.sql`,
      sql: 'CREATE TABLE added (id INTEGER);',
      checksum: 'x',
    };
    expect(migrate(db, AT, [...readMigrations(), added])).toBe(KNOWN + 1);
    expect(columnsOf(db, 'added')).toEqual(['id']);
    db.close();
  });

  it('are only files that are named as such', () => {
    const directory = path.join(temporaryDirectory(), 'sql');
    mkdirSync(directory);
    for (const name of ['002_b.sql', '001_a.sql', '003_c.sql.bak', 'notes.sql', '1_x.sql']) {
      writeFileSync(path.join(directory, name), `-- ${name}`);
    }
    expect(readMigrations(directory).map(({ name }) => name)).toEqual(['001_a.sql', '002_b.sql']);
  });

  it('by many processes at once end with one schema, and nobody is refused', async () => {
    const directory = temporaryDirectory();
    const children = Array.from({ length: 12 }, () => startChild('open-store', [directory]));
    await Promise.all(children.map((child) => child.next()));
    for (const child of children) child.say('go');
    const answers = await Promise.all(children.map((child) => child.next()));
    expect(answers).toEqual(children.map(() => ({ schemaVersion: KNOWN })));
    expect(raw(directory).prepare('SELECT count(*) AS n FROM migrations').get()).toEqual({
      n: COUNT,
    });
  });
});

describe('the opened store', () => {
  it('is in WAL and synchronous=FULL, with foreign keys on', () => {
    const { db, schemaVersion } = openDatabase(temporaryDirectory(), AT);
    expect(db.pragma('journal_mode', { simple: true })).toBe('wal');
    expect(db.pragma('synchronous', { simple: true })).toBe(2); // FULL
    expect(db.pragma('foreign_keys', { simple: true })).toBe(1);
    expect(schemaVersion).toBe(KNOWN);
    db.close();
  });

  it('waits for another writer instead of failing at once', () => {
    const { db } = openDatabase(temporaryDirectory(), AT);
    expect(db.pragma('busy_timeout', { simple: true })).toBe(5_000);
    db.close();
  });
});

describe('the schema', () => {
  it('row 154: work_units has every column of the model', () => {
    const directory = temporaryDirectory();
    open(directory);
    expect(columnsOf(raw(directory), 'work_units')).toEqual(
      expect.arrayContaining([
        ...['id', 'workspace_id', 'kind', 'owner_type', 'owner_id', 'channel_id', 'task_id'],
        ...['teammate_id', 'provider_preset_id', 'runner_id', 'idempotency_key', 'status'],
        ...['priority', 'attempt_count', 'active_attempt_id', 'created_by_client_id'],
        ...['created_by_actor', 'request_json', 'timeout_policy_json', 'created_at'],
        ...['updated_at', 'started_at', 'ended_at', 'last_event_at', 'last_heartbeat_at'],
        ...['error_code', 'error_message'],
      ]),
    );
  });

  it('row 155: idempotency is unique over workspace, kind, owner and key', () => {
    const directory = temporaryDirectory();
    open(directory);
    const db = raw(directory);
    expect(indexOf(db, 'idx_work_unit_idempotency')).toEqual([
      'workspace_id',
      'kind',
      'owner_type',
      'owner_id',
      'idempotency_key',
    ]);
    expect(isUnique(db, 'work_units', 'idx_work_unit_idempotency')).toBe(true);
  });

  it('row 156: the queue has an index by status, priority and age, and is read by it', () => {
    const directory = temporaryDirectory();
    open(directory);
    const db = raw(directory);
    expect(indexOf(db, 'idx_work_unit_status')).toEqual([
      'workspace_id',
      'status',
      '-priority',
      'created_at',
    ]);
    expect(planOfNextQueued(directory)).toContain('idx_work_unit_status');
  });

  it('row 157: attempts are numbered once per work unit and belong to one', () => {
    const directory = temporaryDirectory();
    open(directory);
    const db = raw(directory);
    expect(indexOf(db, 'idx_work_unit_attempt_number')).toEqual(['work_unit_id', 'attempt_number']);
    expect(isUnique(db, 'work_unit_attempts', 'idx_work_unit_attempt_number')).toBe(true);
    expect(db.pragma('foreign_key_list(work_unit_attempts)')).toMatchObject([
      { table: 'work_units', from: 'work_unit_id', to: 'id' },
    ]);
  });

  it('row 158: events have one row for each sequence number of a work unit', () => {
    const directory = temporaryDirectory();
    open(directory);
    const db = raw(directory);
    expect(columnsOf(db, 'runtime_events')).toEqual(
      expect.arrayContaining([
        'work_unit_id',
        'attempt_id',
        'seq',
        'ts',
        'type',
        'actor',
        'data_json',
      ]),
    );
    expect(indexOf(db, 'idx_runtime_event_seq')).toEqual(['work_unit_id', 'seq']);
    expect(isUnique(db, 'runtime_events', 'idx_runtime_event_seq')).toBe(true);
  });

  it('row 159: heartbeats belong to a work unit and an attempt, found by attempt and time', () => {
    const directory = temporaryDirectory();
    open(directory);
    const db = raw(directory);
    const keys = db.pragma('foreign_key_list(runtime_heartbeats)') as { table: string }[];
    expect(keys.map(({ table }) => table).sort()).toEqual(['work_unit_attempts', 'work_units']);
    expect(indexOf(db, 'idx_runtime_heartbeat_attempt')).toEqual(['attempt_id', 'ts']);
  });
});

it('row 161: slots are found by workspace, resource and status, and counted from that index alone', () => {
  const directory = temporaryDirectory();
  open(directory);
  expect(indexOf(raw(directory), 'idx_slot_status')).toEqual([
    'workspace_id',
    'resource_type',
    'resource_key',
    'status',
  ]);
  const count = planOf(directory, (db) => {
    resourceStatements(db, 'main').countSlots({ type: 'runner', key: 'pi' });
  });
  expect(count).toBe(
    'SEARCH runtime_semaphore_slots USING COVERING INDEX idx_slot_status (workspace_id=? AND resource_type=? AND resource_key=? AND status=?)',
  );
});

describe('a store that is not to be used', () => {
  const changed = (change: (db: Database.Database) => void): string => {
    const directory = temporaryDirectory();
    open(directory).close();
    const db = raw(directory);
    change(db);
    return directory;
  };

  it('is newer: a migration that this outlive does not know', () => {
    const directory = changed((db) => {
      db.exec(`INSERT INTO migrations VALUES (${KNOWN + 1}, '999_later.sql', 'x', '${AT}')`);
    });
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_newer');
    expect(error.status).toBe(503);
    expect(error.message).toContain('999_later.sql');
    expect(error.message).toContain(path.join(directory, 'outlive.db'));
  });

  it('was made by another build: the checksum of a migration differs', () => {
    const directory = changed((db) => db.exec(`UPDATE migrations SET checksum = 'other'`));
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_damaged');
    expect(error.message).toContain('001_init.sql');
    expect(error.message).toContain(path.join(directory, 'outlive.db'));
  });

  it('is left as it was when it is newer', () => {
    const directory = changed((db) => {
      db.exec(`INSERT INTO migrations VALUES (${KNOWN + 1}, '999_later.sql', 'x', '${AT}')`);
    });
    const db = raw(directory);
    const before = schemaOf(db);
    refusal(() => openDatabase(directory, AT));
    expect(schemaOf(db)).toEqual(before);
    expect(db.prepare('SELECT count(*) AS n FROM migrations').get()).toEqual({
      n: COUNT + 1,
    });
  });

  it('belongs to another program', () => {
    const directory = temporaryDirectory();
    const file = path.join(directory, 'outlive.db');
    const other = new Database(file);
    other.exec('CREATE TABLE bookmarks (url TEXT)');
    other.close();
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_damaged');
    expect(error.message).toContain(file);
    const db = raw(directory);
    expect(schemaOf(db)).toHaveLength(1);
    expect(db.pragma('application_id', { simple: true })).toBe(0);
    expect(db.pragma('journal_mode', { simple: true })).toBe('delete');
  });

  it('belongs to another program that has an application id of its own', () => {
    const directory = temporaryDirectory();
    const other = new Database(path.join(directory, 'outlive.db'));
    other.pragma('application_id = 252006674');
    other.exec('CREATE TABLE work_units (id TEXT)');
    other.close();
    expect(refusal(() => openDatabase(directory, AT)).code).toBe('store_damaged');
  });
});
