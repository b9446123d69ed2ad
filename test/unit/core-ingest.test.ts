/** Spool lines into the real store: versions that are not ours, and an end in the middle. */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createIngest } from '../../src/supervisor/ingest.ts';
import { insertAttempt, insertWorkUnit } from '../store/rig.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
let attemptId: string;
let workUnitId: string;
let spool: string;
beforeEach(async () => {
  rig = await bootApi();
  workUnitId = insertWorkUnit(rig.store);
  attemptId = insertAttempt(rig.store, workUnitId);
  const directory = path.join(rig.directory, 'attempt');
  mkdirSync(directory);
  spool = path.join(directory, 'events.jsonl');
});
afterEach(cleanUp);

const ts = '2026-01-02T03:04:05.678Z';
const line = (n: number, more: object = {}): string =>
  `${JSON.stringify({ v: 1, n, ts, type: 'progress', data: { n }, ...more })}\n`;
const events = () =>
  rig.store.events.page(workUnitId, 0, 1_000).map(({ type, data }) => ({ type, data }));

describe('a spool of another version', () => {
  it('keeps an event of an unknown type, in its order, with all it says', async () => {
    writeFileSync(
      spool,
      line(1) + line(2, { type: 'agent.dreamed', data: { of: 'sheep' } }) + line(3),
    );
    await createIngest(rig.inner, attemptId, spool).catchUp();
    expect(events()).toEqual([
      { type: 'progress', data: { n: 1 } },
      {
        type: 'diagnostic.spool_event_unknown',
        data: { type: 'agent.dreamed', data: { of: 'sheep' } },
      },
      { type: 'progress', data: { n: 3 } },
    ]);
  });

  it('is held at the first line of a later major version: told once, nothing passed over', async () => {
    writeFileSync(spool, line(1) + line(2, { v: 2 }) + line(3));
    const ingest = createIngest(rig.inner, attemptId, spool);
    await ingest.catchUp();
    await ingest.catchUp();
    await ingest.finish(true);
    const offset = line(1).length;
    expect(events()).toEqual([
      { type: 'progress', data: { n: 1 } },
      { type: 'diagnostic.version_unknown', data: { what: 'spool', version: 2, known: 1, offset } },
    ]);
    expect(ingest.newer).toBe(2);
    expect(rig.store.attempts.get(attemptId)?.spoolOffset).toBe(offset);
  });

  it('is read on from there by whoever knows it', async () => {
    writeFileSync(spool, line(1) + line(2, { v: 2 }) + line(3));
    await createIngest(rig.inner, attemptId, spool).finish(true);
    writeFileSync(spool, line(1) + line(2) + line(3));
    const later = createIngest(rig.inner, attemptId, spool);
    await later.finish(true);
    expect(later.newer).toBeNull();
    const progress = events().filter(({ type }) => type === 'progress');
    expect(progress.map(({ data }) => data)).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
  });
});

describe('an ingest that is stopped', () => {
  it('has come to rest when stop() resolves: the store may be closed then', async () => {
    const text = 'x'.repeat(50_000);
    for (let n = 1; n <= 100; n++) appendFileSync(spool, line(n, { data: { text } }));
    const ingest = createIngest(rig.inner, attemptId, spool);
    let running = true;
    const read = ingest.catchUp().finally(() => {
      running = false;
    });
    await ingest.stop();
    expect(running).toBe(false);
    await expect(read).resolves.toBeUndefined();
    const offset = rig.store.attempts.get(attemptId)?.spoolOffset ?? 0;
    expect(offset).toBeLessThan(100 * 50_000);
    expect(events().length * line(1, { data: { text } }).length).toBeGreaterThanOrEqual(
      offset - 100,
    );
    await ingest.catchUp();
    expect(rig.store.attempts.get(attemptId)?.spoolOffset).toBe(offset);
  });
});
