import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ExitRecordDropIn, quoteForUnitFile } from '../../src/systemd/drop-in.ts';

let userRuntime = '';
let directory = '';
beforeEach(() => {
  userRuntime = mkdtempSync(path.join(os.tmpdir(), 'outlive-drop-in-'));
  directory = path.join(userRuntime, 'systemd/user/outlive-main-.service.d');
});
afterEach(() => rmSync(userRuntime, { recursive: true }));

const dropIn = (changes: Partial<ConstructorParameters<typeof ExitRecordDropIn>[0]> = {}) =>
  new ExitRecordDropIn({
    workspace: 'main',
    userRuntime,
    exits: '/state/exits',
    script: 'echo 1\n',
    ...changes,
  });
const read = (name: string): string => readFileSync(path.join(directory, name), 'utf8');

describe('the drop-in', () => {
  test('runs a copy of the script that lies beside it, privileged and forgiven', async () => {
    await dropIn().ensure();
    expect(read('50-exit.conf').split('\n')).toContain(
      `ExecStopPost=-+/bin/sh "${directory}/exit-record.sh" "/state/exits"`,
    );
    expect(read('exit-record.sh')).toBe('echo 1\n');
    expect(readdirSync(directory).sort()).toEqual(['50-exit.conf', 'exit-record.sh']);
  });

  test('is written once and not again while it is right', async () => {
    await dropIn().ensure();
    const inode = statSync(path.join(directory, '50-exit.conf')).ino;
    await dropIn().ensure();
    expect(statSync(path.join(directory, '50-exit.conf')).ino).toBe(inode);
  });

  test('is replaced, script and all, by another version', async () => {
    await dropIn().ensure();
    await dropIn({ script: 'echo 2\n', exits: '/elsewhere' }).ensure();
    expect(read('exit-record.sh')).toBe('echo 2\n');
    expect(read('50-exit.conf')).toContain('"/elsewhere"');
  });

  test('takes the place of a link without writing through it', async () => {
    mkdirSync(directory, { recursive: true });
    const theirs = path.join(userRuntime, 'theirs');
    writeFileSync(theirs, 'precious');
    symlinkSync(theirs, path.join(directory, '50-exit.conf'));
    await dropIn().ensure();
    expect(readFileSync(theirs, 'utf8')).toBe('precious');
    expect(lstatSync(path.join(directory, '50-exit.conf')).isFile()).toBe(true);
  });

  test('leaves a person’s files beside it alone', async () => {
    mkdirSync(directory, { recursive: true });
    writeFileSync(path.join(directory, '10-mine.conf'), '[Service]\n');
    await dropIn().ensure();
    expect(read('10-mine.conf')).toBe('[Service]\n');
  });

  test('that cannot be written is state_dir_unwritable, naming the file', async () => {
    mkdirSync(path.dirname(directory), { recursive: true });
    writeFileSync(directory, 'a file where the directory should be');
    await expect(dropIn().ensure()).rejects.toMatchObject({
      code: 'state_dir_unwritable',
      message: expect.stringContaining('50-exit.conf'),
    });
  });

  test('that ensures at the same time as another ends whole', async () => {
    await Promise.all(Array.from({ length: 8 }, () => dropIn().ensure()));
    expect(read('exit-record.sh')).toBe('echo 1\n');
    expect(readdirSync(directory).sort()).toEqual(['50-exit.conf', 'exit-record.sh']);
    expect(existsSync(path.join(directory, '50-exit.conf'))).toBe(true);
  });
});

describe('it applies to a unit', () => {
  const command = (exits: string, script = `${directory}/exit-record.sh`): unknown => [
    '/bin/sh',
    ['/bin/sh', script, exits],
    false,
  ];

  test('that names it and runs its command', () => {
    const ours = dropIn();
    expect(ours.appliesTo([ours.path], [command('/state/exits')])).toBe(true);
    expect(ours.appliesTo(['/a.conf', ours.path], ['x', command('/state/exits')])).toBe(true);
  });

  test('whose path systemd shows with its dollars doubled', () => {
    const ours = dropIn({ exits: '/a$b' });
    expect(ours.appliesTo([ours.path], [command('/a$$b')])).toBe(true);
  });

  test('but not when it is missing, emptied by a later one, or of another place', () => {
    const ours = dropIn();
    expect(ours.appliesTo([], [command('/state/exits')])).toBe(false);
    expect(ours.appliesTo([ours.path], [])).toBe(false);
    expect(ours.appliesTo([ours.path], [command('/elsewhere')])).toBe(false);
    expect(ours.appliesTo([ours.path], [command('/state/exits', '/other.sh')])).toBe(false);
    expect(ours.appliesTo(undefined, undefined)).toBe(false);
  });
});

describe('a word in a unit file', () => {
  test.each([
    ['/a b', '"/a b"'],
    ['/100%', '"/100%%"'],
    ['/a$b', '"/a$$b"'],
    ['/"q"', '"/\\"q\\""'],
    ['/a\\b', '"/a\\\\b"'],
  ])('%s is kept from expansion', (word, quoted) => {
    expect(quoteForUnitFile(word)).toBe(quoted);
  });

  test('with a line end is refused: it would begin a setting of its own', () => {
    expect(() => dropIn({ exits: '/a\nRestart=always' })).toThrow(
      expect.objectContaining({ code: 'path_unsupported' }),
    );
  });
});
