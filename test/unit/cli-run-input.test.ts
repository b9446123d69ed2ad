import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { startWorkUnitSchema } from '../../src/api/schemas.ts';
import { outcomeExitCode } from '../../src/commands/exit-code.ts';
import { buildRequest, type Caller, type RunOptions } from '../../src/commands/run-input.ts';
import { EXIT, type OutliveError } from '../../src/domain/errors.ts';
import { FAILURES } from '../../src/domain/outcome-codes.ts';
import { WORK_UNIT_STATUSES } from '../../src/domain/work-unit.ts';

const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-prompt-'));
afterAll(() => rmSync(directory, { recursive: true }));

function file(content: string | Uint8Array): string {
  const name = path.join(directory, 'prompt.txt');
  writeFileSync(name, content);
  return name;
}

const caller = (stdin: string | Uint8Array = ''): Caller => ({
  user: 'ada',
  cwd: () => '/srv/lab-user/repo',
  env: { PASSED: 'from here' },
  readStdin: async () => Buffer.from(stdin),
});

const build = (words: string[], options: Partial<RunOptions> = {}, stdin?: string | Uint8Array) =>
  buildRequest(words, { runner: 'pi', ...options }, caller(stdin));

/** What a usage error says. */
const refusal = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => expect.unreachable('it was not refused'),
    (error: OutliveError) => {
      expect(error).toMatchObject({ code: 'usage', exit: EXIT.usage });
      return error.message;
    },
  );

describe('the sandbox', () => {
  it('is asked for by name, or left to the daemon', async () => {
    expect(await build(['p'], { sandbox: 'nest' })).toMatchObject({ sandbox: 'nest' });
    expect(await build(['p'])).not.toHaveProperty('sandbox');
  });
});

describe('variables', () => {
  it('are given with their value, or passed on from the caller; files as paths; X14', async () => {
    const env = ['A=1', 'B=x=y', 'C=', 'PASSED'];
    expect(await build(['p'], { env, envFile: ['.env', '-/etc/lab', '-maybe'] })).toMatchObject({
      environment: { A: '1', B: 'x=y', C: '', PASSED: 'from here' },
      environmentFiles: ['/srv/lab-user/repo/.env', '-/etc/lab', '-/srv/lab-user/repo/maybe'],
    });
    expect(await build(['p'])).not.toHaveProperty('environment');
  });

  it.each([
    ['NOT_SET', /--env NOT_SET: it is not set here/],
    ['1A=secret', /--env 1A: is no name of a variable/],
    ['OUTLIVE_HANDLE=secret', /--env OUTLIVE_HANDLE: is one of outlive's own/],
    ['A=secret\0', /--env A: holds a NUL/],
  ])('refuses %j, and says no value', async (given, said) => {
    const message = await refusal(build(['p'], { env: [given] }));
    expect(message).toMatch(said);
    expect(message).not.toContain('secret');
  });
});

describe('what it waits for', () => {
  it('is named by --after, all of it or as many as --after-needed says', async () => {
    const after = ['a', 'b'];
    expect(await build(['p'], { after })).toMatchObject({ after: { workUnits: after } });
    expect(await build(['p'], { after, afterNeeded: 'any' })).toMatchObject({
      after: { workUnits: after, needed: 'any' },
    });
    expect(await build(['p'], { after, afterNeeded: '2' })).toMatchObject({
      after: { needed: 2 },
    });
    expect(await build(['p'])).not.toHaveProperty('after');
  });

  it.each([
    [{ afterNeeded: 'any' }, '--after-needed is for --after'],
    [{ after: ['a'], afterNeeded: 'most' }, '--after-needed "most"'],
    [{ after: ['a'], afterNeeded: '2' }, '--after or --after-needed: is more than'],
    [{ after: [''] }, '--after or --after-needed: '],
  ])('is refused as %j', async (options, words) => {
    expect(await refusal(build(['p'], options))).toContain(words);
  });
});

describe('what it must leave behind', () => {
  it('is a verification by the shell, files, and a schema; nothing unless asked for', async () => {
    const options = {
      verify: 'npm test && true',
      verifyTimeout: '2m',
      output: ['dist/**', 'report.md'],
      resultSchema: file('{"type":"object"}'),
      leftovers: 'fail',
    } as const;
    expect(await build(['p'], options)).toMatchObject({
      outcome: {
        verify: { argv: ['sh', '-c', 'npm test && true'], timeoutMs: 120_000 },
        outputs: ['dist/**', 'report.md'],
        result: { schema: { type: 'object' } },
      },
      leftovers: 'fail',
    });
    expect(await build(['p'], { resultSchema: '{"const":1}' })).toMatchObject({
      outcome: { result: { schema: { const: 1 } } },
    });
    const plain = await build(['p']);
    expect(plain).not.toHaveProperty('outcome');
    expect(plain).not.toHaveProperty('leftovers');
  });

  it.each([
    [{ verifyTimeout: '2m' }, '--verify-timeout is for --verify'],
    [{ resultSchema: '{' }, '--result-schema is not valid JSON'],
    [{ resultSchema: '/nowhere/x' }, '--result-schema cannot be read'],
    [{ output: ['../x'] }, 'leaves the working directory'],
  ])('%j is refused: %s', async (options, message) => {
    expect(await refusal(build(['p'], options))).toContain(message);
  });
});

describe('the prompt', () => {
  it.each([
    [['fix', 'the', 'test'], 'fix the test'],
    [['@file', 'is', 'a', 'word'], '@file is a word'],
    [['-p', '--json'], '-p --json'],
    [['two  blanks', ' kept '], 'two  blanks  kept '],
  ])('of words %j', async (words, prompt) => {
    expect(await build(words)).toMatchObject({ runnerId: 'pi', prompt });
  });

  it('of a file and of stdin is what is there, byte for byte', async () => {
    expect(await build([], { promptFile: file('@a\n\n-b\n') })).toMatchObject({
      prompt: '@a\n\n-b\n',
    });
    expect(await build([], { promptFile: '-' }, ' from stdin\n')).toMatchObject({
      prompt: ' from stdin\n',
    });
  });

  it('of 1 MB passes by file and by stdin', async () => {
    const text = 'é漢 word\n'.repeat(131_072);
    expect(text.length).toBeGreaterThan(1_000_000);
    expect(await build([], { promptFile: file(text) })).toMatchObject({ prompt: text });
    expect(await build([], { promptFile: '-' }, text)).toMatchObject({ prompt: text });
  });

  it('is refused with what to do when there is none, an empty one, or two', async () => {
    expect(await refusal(build([]))).toContain('--prompt-file FILE');
    expect(await refusal(build(['', ' ']))).toContain('empty');
    expect(await refusal(build([], { promptFile: '-' }, '\n \n'))).toContain('empty (stdin)');
    expect(await refusal(build(['x'], { promptFile: 'f' }))).toContain('Give only one');
  });

  it('is refused when the file cannot be read or is no text', async () => {
    expect(await refusal(build([], { promptFile: path.join(directory, 'none') }))).toContain(
      'ENOENT',
    );
    expect(await refusal(build([], { promptFile: file(Uint8Array.of(0xff, 0xfe)) }))).toContain(
      'not UTF-8',
    );
  });
});

describe('the rest of the request', () => {
  it('names the caller and the current directory', async () => {
    expect(await build(['x'])).toEqual({
      runnerId: 'pi',
      prompt: 'x',
      ownerId: 'ada',
      createdByClientId: 'cli',
      cwd: '/srv/lab-user/repo',
    });
  });

  it('carries every option, in the form of the API', async () => {
    const request = await build(['x'], {
      handle: 'fix42',
      cwd: '../other/',
      model: 'lab/scripted',
      hardTimeout: '1h30m',
      idempotencyKey: 'k',
      priority: '-3',
    });
    expect(request).toMatchObject({
      handle: 'fix42',
      cwd: '/srv/lab-user/other',
      model: 'lab/scripted',
      timeoutPolicy: { hardTimeoutMs: 5_400_000 },
      idempotencyKey: 'k',
      priority: -3,
    });
    expect(startWorkUnitSchema.safeParse(request).success).toBe(true);
  });

  it('takes a command as its words', async () => {
    const options = { runner: 'command', cwd: '/abs' };
    expect(await build(['ls', '-la', '@x', ''], options)).toMatchObject({
      runnerId: 'command',
      argv: ['ls', '-la', '@x', ''],
      cwd: '/abs',
    });
  });

  it('refuses what does not go together or is not well formed, naming the option', async () => {
    const command = { runner: 'command' };
    expect(await refusal(build([], command))).toContain('There is no command');
    expect(await refusal(build([''], command))).toContain('There is no command');
    expect(await refusal(build(['ls'], { ...command, model: 'a/b' }))).toContain('--model');
    expect(await refusal(build(['ls'], { ...command, promptFile: 'f' }))).toContain(
      '--prompt-file',
    );
    expect(await refusal(build(['x'], { handle: 'Not Good' }))).toContain('--handle');
    expect(await refusal(build(['x'], { priority: '1.5' }))).toContain('--priority');
    expect(await refusal(build(['x'], { priority: '5000' }))).toContain('--priority');
    expect(await refusal(build(['x'], { hardTimeout: '90' }))).toContain('duration');
    expect(await refusal(build(['x'], { hardTimeout: '5ms' }))).toContain('--hard-timeout');
    expect(await refusal(build(['x'], { idempotencyKey: '' }))).toContain('--idempotency-key');
    expect(await refusal(build(['x'], { cwd: '' }))).toContain('--cwd');
  });

  it('says so when the current directory is gone, unless --cwd does without it', async () => {
    const gone: Caller = {
      ...caller(),
      cwd: () => {
        throw new Error('ENOENT: uv_cwd');
      },
    };
    expect(await refusal(buildRequest(['x'], { runner: 'pi' }, gone))).toContain(
      'current directory is gone',
    );
    const request = await buildRequest(['x'], { runner: 'pi', cwd: '/abs' }, gone);
    expect(request.cwd).toBe('/abs');
  });
});

describe('outcomeExitCode', () => {
  it('is 124 for the four timeouts and 1 for every other failure', () => {
    const timeouts = Object.keys(FAILURES).filter(
      (code) => outcomeExitCode('failed', code) === EXIT.timeout,
    );
    expect(timeouts.sort()).toEqual([
      'hard_timeout',
      'heartbeat_timeout',
      'idle_timeout',
      'tool_timeout',
    ]);
    expect(outcomeExitCode('failed', 'exit_code')).toBe(1);
    expect(outcomeExitCode('failed', null)).toBe(1);
  });

  it('is 0 for success alone and 130 for a cancellation, whatever its code', () => {
    const zero = WORK_UNIT_STATUSES.filter((status) => outcomeExitCode(status, null) === 0);
    expect(zero).toEqual(['succeeded']);
    expect(outcomeExitCode('cancelled', 'halted')).toBe(130);
  });
});
