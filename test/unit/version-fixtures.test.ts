/**
 * Files as the first version wrote them, from real runs. They never change: whoever changes a
 * format raises its version, adds fixtures of the new one, and goes on reading these as long
 * as an attempt of theirs may still run.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseCommand } from '../../src/attempt/control-command.ts';
import { parseLaunchFile } from '../../src/attempt/launch-file.ts';
import { exitRecordSchema } from '../../src/domain/evidence.ts';
import { lastWordSchema, openedSchema } from '../../src/domain/spool.ts';
import { parseControl } from '../../src/supervisor/control-messages.ts';
import { type ParsedLine, readSpool } from '../../src/supervisor/spool-reader.ts';

const V1 = path.resolve(import.meta.dirname, '../fixtures/v1');

/** The first 16 digits of each file's SHA-256. */
const FROZEN: Readonly<Record<string, string>> = {
  'command/claim': 'c83c5fcf814e64c2',
  'command/control.jsonl': 'fe101cb511e73931',
  'command/events.jsonl': '991a307dc7da397d',
  'command/exit.json': '055e4670ee31dbf5',
  'command/launch.json': 'aeff106757360351',
  'pi/claim': '3b785f895ce13faa',
  'pi/events.jsonl': 'a72c824c934672b0',
  'pi/exit.json': 'a517518c1fc93636',
  'pi/launch.json': '5936f9b730cfb962',
  'stopped/claim': 'd68aa5fbd4436fe9',
  'stopped/events.jsonl': '79fdb4ab54c6d7c1',
  'stopped/exit.json': '0427c27db9c732c3',
  'stopped/launch.json': '08a4aa30ae89345c',
};
const RUNS = ['command', 'pi', 'stopped'] as const;

const text = (name: string): string => readFileSync(path.join(V1, name), 'utf8');
const nonceOf = (run: string): string =>
  (JSON.parse(text(`${run}/claim`)) as { nonce: string }).nonce;

async function linesOf(run: string) {
  const { lines, tornBytes, newer } = readSpool(path.join(V1, run, 'events.jsonl'), 0);
  expect([tornBytes, newer]).toEqual([0, null]);
  const isLine = (parsed: ParsedLine) => (parsed.kind === 'line' ? [parsed.line] : []);
  const known = lines.flatMap(isLine);
  expect(known.length, 'every line is understood').toBe(lines.length);
  return known;
}

it('the fixtures of version 1 are as they were', () => {
  const files = readdirSync(V1, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(V1, path.join(entry.parentPath, entry.name)));
  const digests = files.map((name) => {
    const digest = createHash('sha256').update(text(name)).digest('hex');
    return [name, digest.slice(0, 16)];
  });
  expect(Object.fromEntries(digests)).toEqual(FROZEN);
});

describe.each(RUNS)('version 1 of the run "%s"', (run) => {
  it('spool: every line is read, without gap, from its opening to its last word', async () => {
    const lines = await linesOf(run);
    expect(lines.map(({ n }) => n)).toEqual(lines.map((_, index) => index + 1));
    const opened = openedSchema.parse(lines[0]?.data);
    expect(opened.nonce).toBe(nonceOf(run));
    const last = lines.at(-1);
    expect(last?.type).toBe('runner.finished');
    const verdict = { command: 'error', pi: 'ok', stopped: 'stopped' }[run];
    expect(lastWordSchema.parse(last?.data).verdict).toBe(verdict);
  });

  it('launch.json is read by the wrapper', () => {
    const launch = parseLaunchFile(text(`${run}/launch.json`), 'launch.json');
    expect(launch.nonce).toBe(nonceOf(run));
    expect(launch.runner.kind).toBe(run === 'command' ? 'command' : 'pi');
  });

  it('the exit record is read', () => {
    const record = exitRecordSchema.parse(JSON.parse(text(`${run}/exit.json`)));
    expect(record.nonce).toBe(nonceOf(run));
    expect(record.exitCode).toBe(run === 'stopped' ? 'killed' : 'exited');
  });
});

it('version 1 of the control protocol: every word of a wrapper is understood', () => {
  const said = text('command/control.jsonl').trimEnd().split('\n').map(parseControl);
  expect(new Set(said.map((message) => message?.type))).toEqual(
    new Set(['hello', 'heartbeat', 'done', 'error']),
  );
});

it.each([
  ['ping', '{"v":1,"type":"ping","id":"p1"}'],
  ['abort', '{"v":1,"type":"abort","id":"a1","reason":"interrupt","graceMs":5000}'],
])('version 1 of the control protocol: a wrapper obeys %s', (type, line) => {
  expect(parseCommand(line)).toMatchObject({ type, v: 1 });
});
