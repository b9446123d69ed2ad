/** Variables of a request: their names, their files, and what is said of those that cannot be had. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { environmentFilesSchema, environmentSchema } from '../../src/domain/environment.ts';
import { parseEnvironmentFile } from '../../src/domain/environment-file.ts';
import type { WorkUnitRow } from '../../src/store/work-units.ts';
import { givenEnvironment } from '../../src/supervisor/environment.ts';

const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-env-'));
afterAll(() => rmSync(directory, { recursive: true }));

describe('the variables of a request; X14', () => {
  it('may replace what every run has, and may be OUTLIVE_VAR_…', () => {
    const given = { PATH: '/bin', NODE_OPTIONS: '--no-warnings', OUTLIVE_VAR_FILE: 'a', _b1: '' };
    expect(environmentSchema.parse(given)).toEqual(given);
  });

  it.each([
    ['a name that begins with a digit', { '1A': 'hush' }],
    ['a name with a hyphen', { 'A-B': 'hush' }],
    ['an empty name', { '': 'hush' }],
    ['one of outlive’s own', { OUTLIVE_NONCE: 'hush' }],
    ['a NUL', { A: 'hush\0' }],
    ['half of a character', { A: 'hush\ud800' }],
    ['a value of more than 32 KiB', { A: `hush${'€'.repeat(11_000)}` }],
    [
      '65 of them',
      Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`A${i}`, 'hush'])) as Record<
        string,
        string
      >,
    ],
  ])('are refused with %s, without a value in the message', (_, given) => {
    const parsed = environmentSchema.safeParse(given);
    expect(parsed.success).toBe(false);
    expect(parsed.error?.message).not.toContain('hush');
  });

  it('come from files by absolute paths, optional with a "-"', () => {
    expect(environmentFilesSchema.safeParse(['/etc/lab', '-/etc/lab']).success).toBe(true);
    for (const file of ['etc/lab', '-etc/lab', '--/etc/lab', '/a\0b', '']) {
      expect(environmentFilesSchema.safeParse([file]).success, file).toBe(false);
    }
  });
});

describe('a file of variables', () => {
  it('is read as systemd reads it', () => {
    const text = [
      '# a comment',
      '; another',
      '',
      '  A = plain words  ',
      'B="with # and \\"quotes\\", \\$x and \\n"',
      "C='as it is: \\ \" $x'",
      'D=one\\',
      'two',
      'E=',
      'F="two',
      'lines"',
      'G=a"b"c',
      'H="a" \'b\'',
      'I=back\\\\slash',
      'A=later\r',
      'J=end',
    ].join('\n');
    expect(parseEnvironmentFile(text)).toEqual({
      values: {
        A: 'later',
        B: 'with # and "quotes", $x and \\n',
        C: 'as it is: \\ " $x',
        D: 'onetwo',
        E: '',
        F: 'two\nlines',
        G: 'a"b"c',
        H: 'ab',
        I: 'back\\slash',
        J: 'end',
      },
    });
  });

  it.each([
    ['A=1\nno assignment\n', 2, /no "="/],
    ['\n\n  export A=hush', 3, /"export A" is no name/],
    ['A=1\n\nB="hush\nhush', 3, /quotes of B are not closed/],
    ["A='hush", 1, /quotes of A/],
    ['# c\nOUTLIVE_NONCE=hush', 2, /outlive's own/],
    ['A=hush\0', 1, /value of A holds a NUL/],
  ])('%j is malformed in line %i', (text, line, problem) => {
    const read = parseEnvironmentFile(text);
    expect(read).toEqual({ line, problem: expect.stringMatching(problem) as string });
    expect(JSON.stringify(read)).not.toContain('hush');
  });
});

const given = (request: Partial<WorkUnitRow['request']>) =>
  givenEnvironment({ request: { runnerId: 'command', ...request } } as WorkUnitRow);

function file(name: string, content: string | Uint8Array): string {
  const at = path.join(directory, name);
  writeFileSync(at, content);
  return at;
}

describe('what an attempt is given', () => {
  it('is the files in their order, and over them what the request names itself', async () => {
    const first = file('first', 'A=1\nB=1\nC=1\n');
    const second = file('second', 'B=2\nC=2\n');
    const missing = `-${path.join(directory, 'missing')}`;
    const environmentFiles = [first, missing, second];
    expect(await given({ environmentFiles, environment: { C: '3' } })).toEqual({
      A: '1',
      B: '2',
      C: '3',
    });
    expect(await given({})).toEqual({});
  });

  it.each([
    [
      'a file that is not there',
      () => path.join(directory, 'missing'),
      /missing cannot be read: ENOENT/,
    ],
    ['a directory', () => directory, /cannot be read: it is not a file/],
    ['bytes that are no text', () => file('latin1', Buffer.from([0x41, 0x3d, 0xff])), /not UTF-8/],
    [
      'a malformed one, optional or not',
      () => `-${file('bad', 'A=1\nB\n')}`,
      /bad is malformed in line 2: /,
    ],
  ])(
    'fails for %s, named; and no system call makes it look like a passing fault',
    async (_, make, said) => {
      const failed = await given({ environmentFiles: [make()] }).catch((error: unknown) => error);
      expect((failed as Error).message).toMatch(said);
      expect(failed).not.toHaveProperty('syscall');
    },
  );

  it('does not wait for a FIFO', async () => {
    const fifo = path.join(directory, 'fifo');
    execFileSync('mkfifo', [fifo]);
    await expect(given({ environmentFiles: [fifo] })).rejects.toThrow(
      /fifo cannot be read: it is not a file/,
    );
  });
});
