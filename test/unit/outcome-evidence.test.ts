/** What is found of an ended run: files newer than its start, and the end of what it printed. */
import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type OutcomeContract, outcomeContractSchema } from '../../src/domain/outcome.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import type { OutcomeRow } from '../../src/store/outcomes.ts';
import { capturedTail } from '../../src/supervisor/artifacts.ts';
import type { Context, Settings } from '../../src/supervisor/context.ts';
import { gatherLeft } from '../../src/supervisor/outcome-evidence.ts';

let base: string;
let tree: string;
beforeEach(() => {
  base = mkdtempSync(path.join(os.tmpdir(), 'outlive-left-'));
  tree = path.join(base, 'tree');
  mkdirSync(path.join(tree, 'dist/deep'), { recursive: true });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const START = Date.parse('2026-01-02T03:04:05.678Z');
const ROW = { workUnitId: 'w', attemptNumber: 2, attemptId: 'a2' } as OutcomeRow;
const at = (ms: number): string => new Date(ms).toISOString();

/** The second attempt of its run; the one before belonged to an end of its own if `ended`. */
const context = (ended: boolean): Context => {
  const attempt = (attemptNumber: number, createdAt: number) =>
    ({
      id: `a${attemptNumber}`,
      workUnitId: 'w',
      attemptNumber,
      createdAt: at(createdAt),
      runnerId: 'command',
      lastWord: null,
    }) as AttemptRow;
  const attempts = [attempt(1, START), attempt(2, START + 60_000)];
  return {
    settings: { attemptsDirectory: path.join(base, 'attempts') },
    store: {
      outcomes: { endBefore: () => (ended ? 1 : 0) },
      attempts: { listByWorkUnit: () => attempts, get: () => attempts[1] },
    },
  } as unknown as Context;
};

function left(contract: OutcomeContract, ended = false) {
  return gatherLeft(context(ended), ROW, { cwd: tree }, outcomeContractSchema.parse(contract));
}
const missing = (outputs: string[], ended = false): readonly string[] =>
  left({ outputs }, ended).missing;

function write(name: string, mtimeMs: number): string {
  const file = path.resolve(tree, name);
  writeFileSync(file, 'x');
  utimesSync(file, mtimeMs / 1000, mtimeMs / 1000);
  return file;
}

describe('an output', () => {
  it('is a file, by its path or by a glob', () => {
    const file = write('dist/deep/a.js', START + 1_001);
    const there = ['dist/deep/a.js', 'dist/**/*.js', '**/a.js', 'dist/../dist/deep/*.js', file];
    expect(missing(there)).toEqual([]);
    expect(missing(['dist', 'dist/**/*.css', 'none/x'])).toEqual([
      'dist is no file',
      'dist/**/*.css is no file',
      'none/x is no file',
    ]);
  });

  it('whose name looks like a glob is taken by its name', () => {
    write('a[1].txt', START + 1_001);
    expect(missing(['a[1].txt'])).toEqual([]);
  });

  it('is newer than the first attempt since the end before', () => {
    write('out', START + 30_001);
    expect(missing(['out'])).toEqual([]);
    expect(missing(['out'], true)).toEqual([`out is older than the start (${at(START + 60_000)})`]);
  });

  it('may be stamped by a clock that ticks, or in whole seconds', () => {
    write('ticking', START - 10);
    write('seconds', Math.floor(START / 2000) * 2000);
    write('old', START - 100);
    expect(missing(['ticking', 'seconds', 'old'])).toEqual([
      expect.stringMatching(/^old is older/),
    ]);
  });

  it('one new file of many is enough', () => {
    write('dist/old.js', START - 60_001);
    expect(missing(['dist/*.js'])).toEqual([expect.stringMatching(/^dist.*older/)]);
    write('dist/new.js', START + 1_001);
    expect(missing(['dist/*.js'])).toEqual([]);
  });

  it('is not found outside by a glob that is no absolute one', () => {
    const outside = write('../outside.txt', START + 1_001);
    expect(missing(['{..,.}/outside.txt', '{dist/..,..}/outside.txt'])).toHaveLength(2);
    expect(missing([outside, path.join(base, '*.txt')])).toEqual([]);
  });

  it('that cannot be looked at is told as that', () => {
    writeFileSync(path.join(tree, 'loop'), 'x');
    symlinkSync('again', path.join(tree, 'again'));
    expect(missing(['loop/x', 'again'])).toEqual([
      expect.stringContaining('loop/x'),
      expect.stringContaining('again'),
    ]);
  });
});

describe('what it printed', () => {
  const settings = (): Settings =>
    ({ attemptsDirectory: path.join(base, 'attempts') }) as unknown as Settings;
  const owner = { id: 'a2', workUnitId: 'w' };
  const stdout = (): string => {
    const directory = path.join(base, 'attempts', 'w', 'a2');
    mkdirSync(directory, { recursive: true });
    return path.join(directory, 'stdout.log');
  };
  const tail = (max: number) => capturedTail(settings(), owner, 'stdout', max);

  it('is read from its end', () => {
    writeFileSync(stdout(), 'first\nlast\n');
    expect(tail(5)).toEqual({ text: 'last\n', whole: false });
    expect(tail(100)).toEqual({ text: 'first\nlast\n', whole: true });
  });

  it('is nothing where it is missing, a link, or a file with another name too', () => {
    expect(tail(100)).toEqual({ text: '', whole: true });
    const secret = path.join(base, 'secret');
    writeFileSync(secret, 'key');
    symlinkSync(secret, stdout());
    expect(tail(100).text).toBe('');
    rmSync(stdout());
    linkSync(secret, stdout());
    expect(tail(100).text).toBe('');
  });

  it('a result longer than what is read of it is told as cut', () => {
    writeFileSync(stdout(), JSON.stringify({ text: 'x'.repeat(100_000) }));
    const { result, json } = left({ result: { schema: {} } });
    expect(result).toContain('was cut');
    expect(json).toBeNull();
  });
});
