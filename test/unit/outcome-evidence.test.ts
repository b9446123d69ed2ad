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
import { gatherLeft, lookAside } from '../../src/supervisor/outcome-evidence.ts';
import type { Left, LookRequest } from '../../src/supervisor/outcome-look.ts';

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

async function left(contract: OutcomeContract, ended = false): Promise<Left> {
  const parsed = outcomeContractSchema.parse(contract);
  const found = await gatherLeft(context(ended), ROW, { cwd: tree }, parsed);
  if (found === null) throw new Error('there was no thread to look');
  return found;
}
const missing = async (outputs: string[], ended = false): Promise<readonly string[]> =>
  (await left({ outputs }, ended)).missing;

function write(name: string, mtimeMs: number): string {
  const file = path.resolve(tree, name);
  writeFileSync(file, 'x');
  utimesSync(file, mtimeMs / 1000, mtimeMs / 1000);
  return file;
}

describe('an output', () => {
  it('is a file, by its path or by a glob', async () => {
    const file = write('dist/deep/a.js', START + 1_001);
    const there = ['dist/deep/a.js', 'dist/**/*.js', '**/a.js', 'dist/../dist/deep/*.js', file];
    expect(await missing(there)).toEqual([]);
    expect(await missing(['dist', 'dist/**/*.css', 'none/x'])).toEqual([
      'dist is no file',
      'dist/**/*.css is no file',
      'none/x is no file',
    ]);
  });

  it('whose name looks like a glob is taken by its name', async () => {
    write('a[1].txt', START + 1_001);
    expect(await missing(['a[1].txt'])).toEqual([]);
  });

  it('is newer than the first attempt since the end before', async () => {
    write('out', START + 30_001);
    expect(await missing(['out'])).toEqual([]);
    expect(await missing(['out'], true)).toEqual([
      `out is older than the start (${at(START + 60_000)})`,
    ]);
  });

  it('may be stamped by a clock that ticks, or in whole seconds', async () => {
    write('ticking', START - 10);
    write('seconds', Math.floor(START / 2000) * 2000);
    write('old', START - 100);
    expect(await missing(['ticking', 'seconds', 'old'])).toEqual([
      expect.stringMatching(/^old is older/),
    ]);
  });

  it('one new file of many is enough', async () => {
    write('dist/old.js', START - 60_001);
    expect(await missing(['dist/*.js'])).toEqual([expect.stringMatching(/^dist.*older/)]);
    write('dist/new.js', START + 1_001);
    expect(await missing(['dist/*.js'])).toEqual([]);
  });

  it('is not found outside by a glob that is no absolute one', async () => {
    const outside = write('../outside.txt', START + 1_001);
    expect(await missing(['{..,.}/outside.txt', '{dist/..,..}/outside.txt'])).toHaveLength(2);
    expect(await missing([outside, path.join(base, '*.txt')])).toEqual([]);
  });

  it('that cannot be looked at hides no other that a glob finds', async () => {
    symlinkSync('round', path.join(tree, 'dist/round'));
    write('dist/good', START + 1_001);
    expect(await missing(['dist/*'])).toEqual([]);
  });

  it('that cannot be looked at is told as that', async () => {
    writeFileSync(path.join(tree, 'loop'), 'x');
    symlinkSync('again', path.join(tree, 'again'));
    expect(await missing(['loop/x', 'again'])).toEqual([
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

  it('is read from its end', async () => {
    writeFileSync(stdout(), 'first\nlast\n');
    expect(tail(5)).toEqual({ text: 'last\n', whole: false });
    expect(tail(100)).toEqual({ text: 'first\nlast\n', whole: true });
  });

  it('is nothing where it is missing, a link, or a file with another name too', async () => {
    expect(tail(100)).toEqual({ text: '', whole: true });
    const secret = path.join(base, 'secret');
    writeFileSync(secret, 'key');
    symlinkSync(secret, stdout());
    expect(tail(100).text).toBe('');
    rmSync(stdout());
    linkSync(secret, stdout());
    expect(tail(100).text).toBe('');
  });

  it('a result longer than what is read of it is told as cut', async () => {
    writeFileSync(stdout(), JSON.stringify({ text: 'x'.repeat(100_000) }));
    const { result, json } = await left({ result: { schema: {} } });
    expect(result).toContain('was cut');
    expect(json).toBeNull();
  });
});

describe('a look', () => {
  const ask = (known: Partial<LookRequest>): LookRequest => ({
    cwd: tree,
    outputs: [],
    since: 0,
    result: null,
    ...known,
  });
  const returned = (text: string, schema: object): LookRequest =>
    ask({
      result: { runnerId: 'command', text, whole: true, schema: schema as Record<string, unknown> },
    });

  it.each([
    ['a glob that walks through everything', ask({ outputs: ['/**/no-such-name'] })],
    [
      'a pattern that goes on for ever',
      returned(JSON.stringify(`${'a'.repeat(45)}!`), { pattern: '^(\\w+\\s?)*$' }),
    ],
  ])('at %s is given up after its time, and holds nobody up', async (_, request) => {
    let turns = 0;
    const timer = setInterval(() => {
      turns += 1;
    }, 10);
    const found = await lookAside(request, { ms: 500 });
    clearInterval(timer);
    expect([...(found?.missing ?? []), found?.result ?? ''].join('')).toMatch(
      /could not be looked at: /,
    );
    expect(turns).toBeGreaterThan(5);
  });

  it('finds nothing in JSON that nobody could walk through', async () => {
    const deep = `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
    const found = await lookAside(returned(deep, {}));
    expect(found).toMatchObject({
      json: null,
      result: expect.stringContaining('nested more than'),
    });
  });

  it('that is told to stop has found out nothing', async () => {
    const stop = new AbortController();
    const looking = lookAside(ask({ outputs: ['/**/no-such-name'] }), { signal: stop.signal });
    stop.abort();
    expect(await looking).toBeNull();
  });
});
