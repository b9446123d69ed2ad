import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { openDatabase, STORE_FILE } from '../../src/store/open.ts';
import { AT, cleanUp, insertWorkUnit, newEvent, open, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

/** The file of a closed store with a few hundred events in it. */
function filled(): { directory: string; file: string } {
  const directory = temporaryDirectory();
  const store = open(directory);
  const id = insertWorkUnit(store);
  store.write(() =>
    store.events.append(
      id,
      Array.from({ length: 300 }, (_, index) => newEvent(id, { index, text: 'x'.repeat(300) })),
    ),
  );
  store.close();
  return { directory, file: path.join(directory, STORE_FILE) };
}

describe('a damaged store', () => {
  it.each([
    ['text', 'this is not a database\n'.repeat(100)],
    ['one byte', 'x'],
    ['zeros', '\0'.repeat(8192)],
    [
      'random bytes',
      String.fromCharCode(...Array.from({ length: 4096 }, (_, i) => (i * 193) % 127)),
    ],
  ])('that holds %s is refused by name and left as it is', (_what, content) => {
    const directory = temporaryDirectory();
    const file = path.join(directory, STORE_FILE);
    writeFileSync(file, content);
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_damaged');
    expect(error.status).toBe(503);
    expect(error.message).toContain(file);
    expect(readFileSync(file, 'latin1')).toBe(content);
  });

  it('that was cut anywhere is refused, never started over', () => {
    const { directory, file } = filled();
    const whole = readFileSync(file);
    expect(existsSync(`${file}-wal`)).toBe(false);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: whole.length - 1 }), (length) => {
        writeFileSync(file, whole);
        truncateSync(file, length);
        const error = refusal(() => openDatabase(directory, AT));
        expect(error.code).toBe('store_damaged');
        expect(error.message).toContain(file);
        expect(statSync(file).size).toBe(length);
      }),
      { numRuns: 60, examples: [[1], [99], [100], [4095], [4096], [4097], [whole.length - 1]] },
    );
  });

  it('with a page of zeros in its middle is refused', () => {
    const { directory, file } = filled();
    const bytes = readFileSync(file);
    bytes.fill(0, 4096, 8192);
    writeFileSync(file, bytes);
    expect(refusal(() => openDatabase(directory, AT)).code).toBe('store_damaged');
  });

  it('is a directory of that name: refused by name, too', () => {
    const directory = temporaryDirectory();
    const file = path.join(directory, STORE_FILE);
    mkdirSync(file);
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_unavailable');
    expect(error.message).toContain(file);
  });

  it('whose directory cannot be made is refused by name', () => {
    const file = path.join(temporaryDirectory(), 'file');
    writeFileSync(file, '');
    const error = refusal(() => openDatabase(path.join(file, 'store'), AT));
    expect(error.code).toBe('store_unavailable');
    expect(error.message).toContain(path.join(file, 'store', STORE_FILE));
  });

  it('that is empty is refused: a store is never begun over a lost one', () => {
    const { directory, file } = filled();
    truncateSync(file, 0);
    writeFileSync(`${file}-wal`, 'what was not written back yet');
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_damaged');
    expect(error.message).toContain(`${file}: it is empty`);
    expect(statSync(file).size).toBe(0);
    // Whoever repairs it may still need the log.
    expect(readFileSync(`${file}-wal`, 'utf8')).toBe('what was not written back yet');
  });

  it('that is gone but for its log is refused: the log must not end up in a new one', () => {
    const { directory, file } = filled();
    rmSync(file);
    writeFileSync(`${file}-wal`, 'what was not written back yet');
    const error = refusal(() => openDatabase(directory, AT));
    expect(error.code).toBe('store_damaged');
    expect(error.message).toContain(`${file}-wal`);
    expect(existsSync(file)).toBe(false);
  });

  it('that shows only while it is read says so, too', () => {
    const { directory, file } = filled();
    const store = open(directory);
    const id = insertWorkUnit(store);
    // More than SQLite keeps in memory (16 MiB), so that the read goes to the disk.
    for (let index = 0; index < 10; index++) {
      const event = newEvent(id, { text: 'x'.repeat(2 ** 21) });
      store.write(() => store.events.append(id, [event]));
    }
    for (const each of [file, `${file}-wal`]) {
      writeFileSync(each, readFileSync(each).fill(0xa5, 4096));
    }
    const error = refusal(() => store.events.page(id, 0, 1_000));
    expect(error.code).toBe('store_damaged');
    expect(error.status).toBe(503);
    expect(error.message).toContain(file);
  });
});

describe('a new store', () => {
  it('is made whole or not at all: nothing of a half-made one is left, or taken for it', () => {
    const directory = temporaryDirectory();
    // What a process of our pid leaves that died while it made the store.
    writeFileSync(path.join(directory, `${STORE_FILE}.new-${process.pid}`), 'half');
    open(directory).close();
    expect(readdirSync(directory)).toEqual([STORE_FILE]);
  });
});

describe('a store of its own user', () => {
  it('lies in a directory that nobody else can enter', () => {
    const directory = path.join(temporaryDirectory(), 'state', 'store');
    open(directory);
    expect(statSync(directory).mode & 0o777).toBe(0o700);
  });
});
