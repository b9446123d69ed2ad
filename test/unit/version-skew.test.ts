/** Daemon and wrapper of different versions: every deploy, and every step back from one. */
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { WRITTEN_SPOOL_VERSION } from '../../src/attempt/spool-writer.ts';
import { laterRecordVersion } from '../../src/domain/evidence.ts';
import { type LineReader, readLine, SPOOL_READERS, SPOOL_VERSION } from '../../src/domain/spool.ts';
import { type ControlLink, openControlLink } from '../../src/supervisor/control-link.ts';
import { parseControl } from '../../src/supervisor/control-messages.ts';
import { readSpool } from '../../src/supervisor/spool-reader.ts';

const undo: (() => void)[] = [];
afterEach(() => {
  for (const each of undo.splice(0).reverse()) each();
});

function temporaryDirectory(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-skew-'));
  undo.push(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const LINE = { v: 1, n: 1, ts: '2026-01-02T03:04:05.678Z', type: 'progress', data: { a: 1 } };
const NEXT = SPOOL_VERSION + 1;

describe('a spool line', () => {
  it('is written in the version that is read as the present one', () => {
    expect(WRITTEN_SPOOL_VERSION).toBe(SPOOL_VERSION);
    expect([...SPOOL_READERS.keys()].at(-1)).toBe(SPOOL_VERSION);
  });

  it('of an unknown type is kept with all it says', () => {
    const line = { n: 1, ts: LINE.ts, type: 'agent.dreamed', data: { a: 1 } };
    expect(readLine({ ...LINE, type: 'agent.dreamed' })).toEqual({ kind: 'unknown_type', line });
  });

  it('with unknown fields keeps them within its data', () => {
    expect(readLine({ ...LINE, mood: 'good', data: { a: 1, b: [2] } })).toMatchObject({
      kind: 'line',
      line: { data: { a: 1, b: [2], lineFields: { mood: 'good' } } },
    });
  });

  it('of a later major version is told as such, not as damage', () => {
    expect(readLine({ v: NEXT, words: 'of the future' })).toEqual({ kind: 'newer', version: NEXT });
  });

  it.each([
    ['no version', { ...LINE, v: undefined }],
    ['a version that is a text', { ...LINE, v: '1' }],
    ['a version from before the first', { ...LINE, v: 0 }],
    ['no number', { ...LINE, n: 'one' }],
    ['a time that is none', { ...LINE, ts: 'today' }],
    ['data that is none', { ...LINE, data: null }],
    ['nothing at all', null],
  ])('with %s is damage', (_what, value) => {
    expect(readLine(value).kind).toBe('corrupt');
  });

  it('of each version in the table goes through the reader of its own', () => {
    const readNext: LineReader = ({ event, at }) => ({
      kind: 'line',
      line: { n: 1, ts: String(at), type: 'progress', data: { event } },
    });
    const readers = new Map([...SPOOL_READERS, [NEXT, readNext]]);
    expect(readLine(LINE, readers)).toMatchObject({ kind: 'line', line: { data: { a: 1 } } });
    expect(readLine({ v: NEXT, event: 'e', at: LINE.ts }, readers)).toMatchObject({
      line: { data: { event: 'e' } },
    });
    expect(readLine({ v: NEXT + 1 }, readers)).toEqual({ kind: 'newer', version: NEXT + 1 });
  });
});

describe('a spool that goes on in a later version', () => {
  it('is read up to there, and no further, however often it is tried', async () => {
    const spool = path.join(temporaryDirectory(), 'events.jsonl');
    const first = `${JSON.stringify(LINE)}\n`;
    writeFileSync(spool, `${first}${JSON.stringify({ v: NEXT })}\n`);
    const { lines, nextOffset, newer } = readSpool(spool, 0);
    expect([lines.length, nextOffset, newer]).toEqual([1, first.length, NEXT]);
    appendFileSync(spool, first);
    const again = readSpool(spool, nextOffset);
    expect([again.lines.length, again.nextOffset, again.newer]).toEqual([0, first.length, NEXT]);
  });
});

describe('an exit record', () => {
  it.each([
    [{ v: 2, exit: 'fine' }, 2],
    [{ v: 1 }, null],
    [{ v: '2' }, null],
    [null, null],
  ])('%j is of the later version %s', (value, version) => {
    expect(laterRecordVersion(value)).toBe(version);
  });
});

/** A wrapper of another version, on a real socket. */
async function wrapper(v: number, more: object = {}) {
  const socketPath = path.join(temporaryDirectory(), 'control.sock');
  const heard: Record<string, unknown>[] = [];
  const problems: string[] = [];
  const beaten = Promise.withResolvers<string>();
  const server = net.createServer((socket) => {
    const say = (message: object) =>
      socket.write(`${JSON.stringify({ v, ...message, ...more })}\n`);
    say({ type: 'hello', attemptId: 'a', nonce: 'ours', invocationId: null, pid: 1 });
    say({ type: 'weather', sky: 'blue' });
    say({ type: 'heartbeat', ts: LINE.ts });
    socket.on('data', (chunk: Buffer) => {
      for (const line of String(chunk).trimEnd().split('\n')) {
        const command = JSON.parse(line) as Record<string, unknown>;
        heard.push(command);
        say({ type: 'done', id: command['id'] });
      }
    });
    socket.on('error', () => undefined);
    undo.push(() => {
      socket.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  undo.push(() => {
    server.close();
  });
  const link: ControlLink = openControlLink(socketPath, 'ours', {
    onHeartbeat: ({ ts }) => beaten.resolve(ts),
    onProblem: (reason) => problems.push(reason),
  });
  undo.push(() => link.close());
  return { link, heard, problems, beaten: beaten.promise };
}

describe('the control protocol', () => {
  it.each([
    ['of our version', 1],
    ['that is newer', 7],
  ])(
    'with a wrapper %s: its heart is heard, and it is asked in the lower version',
    async (_what, v) => {
      const { link, heard, problems, beaten } = await wrapper(v, { mood: 'good' });
      expect(await beaten).toBe(LINE.ts);
      expect(await link.ping('p1', 5_000)).toBe(true);
      expect(link.abort('interrupt', 1_000, 'a1')).toBe(true);
      expect(await link.ping('p2', 5_000)).toBe(true);
      expect(heard.map(({ v: version, type }) => [version, type])).toEqual([
        [1, 'ping'],
        [1, 'abort'],
        [1, 'ping'],
      ]);
      expect(link.live).toEqual({ currentTool: null, costUsd: null, totalTokens: null });
      expect(problems).toEqual([]);
    },
  );

  it.each([
    ['not JSON', '{'],
    ['no version', '{"type":"heartbeat","ts":"2026-01-02T03:04:05Z"}'],
    ['a heartbeat without a time', '{"v":1,"type":"heartbeat"}'],
    ['a greeting without a nonce', '{"v":9,"type":"hello"}'],
  ])('%s is not the protocol', (_what, line) => {
    expect(parseControl(line)).toBeNull();
  });

  it('what a later version says beyond what we know costs nothing', () => {
    expect(parseControl('{"v":3,"type":"weather"}')).toEqual({ type: 'unknown' });
    const live = '{"currentTool":{"name":"bash"},"costUsd":0.5}';
    expect(
      parseControl(`{"v":3,"type":"heartbeat","ts":"${LINE.ts}","live":${live}}`),
    ).toMatchObject({ live: { currentTool: null, costUsd: 0.5, totalTokens: null } });
  });
});
