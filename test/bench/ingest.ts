/**
 * What it costs to bring a spool into the store, beside a bare loop that inserts the same
 * rows: reading, parsing, checking, numbering and publishing are the difference.
 */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { SpoolEventType } from '../../src/domain/events.ts';
import { openStore } from '../../src/store/store.ts';
import { createIngest } from '../../src/supervisor/ingest.ts';
import { QueueRig } from '../support/core-queue.ts';
import { monotonicMs } from './clock.ts';
import { type Figure, figure, inTurn } from './figure.ts';

const LINES = 20_000;
/** Rows of one transaction of the bare loop. */
const BATCH = 50;

/** What a run of an agent leaves, line by line: mostly small, now and then a tool's output. */
function spool(lines: number): string {
  const at = (n: number): string => new Date(1_760_000_000_000 + n * 20).toISOString();
  const line = (n: number, type: SpoolEventType, data: object): string =>
    JSON.stringify({ v: 1, n, ts: at(n), type, data });
  return Array.from({ length: lines }, (_, index) => {
    const n = index + 1;
    const toolCallId = `call_${Math.floor(n / 4)}`;
    if (n % 4 === 1)
      return line(n, 'tool.start', { toolCallId, tool: 'bash', command: 'npm test' });
    if (n % 4 === 2)
      return line(n, 'tool.update', { toolCallId, text: 'ok 1 - it works\n'.repeat(8) });
    if (n % 4 === 3) return line(n, 'tool.end', { toolCallId, isError: false, ms: n });
    return line(n, 'agent.message', {
      text: 'I have run the tests and will look at the next file.',
    });
  })
    .map((text) => `${text}\n`)
    .join('');
}

export async function measureIngest(rounds: number): Promise<Figure[]> {
  const text = spool(LINES);
  const some = Math.max(3, Math.ceil(rounds / 5));
  const backlog = await inTurn(
    some,
    () => ingested(text, LINES),
    () => inserted(text, BATCH),
  );
  const live = await inTurn(
    some,
    () => ingested(text, BATCH),
    () => inserted(text, BATCH),
  );
  const measures = `lines of a spool to committed events, ${LINES} of them`;
  const bare = `bare inserts, ${BATCH} a transaction`;
  return [
    figure({
      name: 'ingest.backlog',
      unit: 'rows/ms',
      measures: `${measures}, all there at the start`,
      ours: backlog.ours,
      beside: { what: bare, samples: backlog.beside },
      target: { of: 'ratio', atLeast: 0.5 },
    }),
    figure({
      name: 'ingest.live',
      unit: 'rows/ms',
      measures: `${measures}, read whenever ${BATCH} more are there`,
      ours: live.ours,
      beside: { what: bare, samples: live.beside },
      target: { of: 'ratio', atLeast: 0.5 },
    }),
  ];
}

async function inDirectory<Result>(work: (directory: string) => Promise<Result>): Promise<Result> {
  const directory = mkdtempSync(path.join(os.homedir(), 'bench-ingest-'));
  try {
    return await work(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Reads the spool whenever so many lines more are in it. @returns rows a millisecond. */
function ingested(text: string, atOnce: number): Promise<number> {
  return inDirectory(async (directory) => {
    const store = openStore(directory, 'main', new Date().toISOString());
    const rig = new QueueRig(store);
    const id = rig.submit();
    rig.claimAll();
    rig.run(id);
    const file = path.join(directory, 'events.jsonl');
    const lines = text.split('\n').slice(0, -1);
    const ingest = createIngest(rig.context, rig.active(id).id, file);
    let took = 0;
    for (let from = 0; from < lines.length; from += atOnce) {
      appendFileSync(
        file,
        lines
          .slice(from, from + atOnce)
          .join('\n')
          .concat('\n'),
      );
      const began = monotonicMs();
      await ingest.catchUp();
      took += monotonicMs() - began;
    }
    if (rig.active(id).spoolLines !== LINES) throw new Error('not every line was read');
    store.close();
    return LINES / took;
  });
}

/** The same rows into the same table, with the same durability, and nothing else. */
function inserted(text: string, atOnce: number): Promise<number> {
  return inDirectory(async (directory) => {
    const store = openStore(directory, 'main', new Date().toISOString());
    const id = new QueueRig(store).submit();
    const { file } = store;
    store.close();
    const rows = text
      .split('\n')
      .slice(0, -1)
      .map((line, index) => {
        const { ts, type, data } = JSON.parse(line) as { ts: string; type: string; data: object };
        return [id, 'attempt', index + 100, ts, type, 'runner', JSON.stringify(data)];
      });
    const db = new Database(file);
    db.pragma('journal_mode = WAL');
    db.pragma('synchronous = FULL');
    const insert = db.prepare(
      `INSERT INTO runtime_events (work_unit_id, attempt_id, seq, ts, type, actor, data_json)
       VALUES (?, ?, ?, ?, ?, ?, ?)`,
    );
    const batch = db.transaction((some: typeof rows) => {
      for (const row of some) insert.run(row);
    });
    const began = monotonicMs();
    for (let from = 0; from < rows.length; from += atOnce) {
      batch.immediate(rows.slice(from, from + atOnce));
    }
    const took = monotonicMs() - began;
    db.close();
    return LINES / took;
  });
}
