/** A running attempt whose spool goes on in a later version: held, not misjudged, and read by whoever knows it. */
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type DaemonProcess, Rig, sequenceIsWhole, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

/** A run that has said a line of version 2 in its middle, and has ended since. */
async function ended(): Promise<{ id: string; spool: string; daemon: DaemonProcess }> {
  const daemon = await rig.startDaemon();
  const go = path.join(rig.tree, 'go');
  const { id } = await rig.submit({
    argv: ['sh', '-c', `echo up; until [ -e ${go} ]; do sleep 0.1; done; echo done`],
  });
  await rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'its output');
  const [attempt] = (await rig.client.getWorkUnit(id)).attempts;
  const spool = path.join(rig.config.directories.attempts, id, attempt?.id ?? '', 'events.jsonl');
  appendFileSync(spool, LATER);
  await rig.waitForEvent(id, ({ type }) => type === 'diagnostic.version_unknown', 'it to be told');
  writeFileSync(go, '');
  await rig.unitsAreDead();
  return { id, spool, daemon };
}

const line = (v: number): string =>
  `${JSON.stringify({ v, n: 99, ts: '2026-01-02T03:04:05.678Z', type: 'progress', data: { from: 'later' } })}\n`;
const LATER = line(2);

describe('a run that an older daemon cannot read to its end', () => {
  it('is not decided by it, and has its true end from a daemon that can', async () => {
    const { id, spool, daemon } = await ended();
    daemon.kill('SIGKILL');
    await within('the daemon to end', daemon.exited);
    const older = await rig.startDaemon();
    let told = 0;
    const again = ({ type }: { type: string }): boolean =>
      type === 'diagnostic.version_unknown' && ++told === 2;
    await rig.waitForEvent(id, again, 'it to be told again');
    await rig.client.reconcileAll();
    expect((await rig.client.getWorkUnit(id)).status, 'looked at, and held').toBe('running');
    older.kill('SIGKILL');
    await within('the daemon to end', older.exited);
    // A daemon of version 2 would understand the line; this one does once it says 1.
    writeFileSync(spool, readFileSync(spool, 'utf8').replace(LATER, line(1)));
    await rig.startDaemon();
    const { workUnit, events } = await rig.outcome(id);
    expect(workUnit.status).toBe('succeeded');
    expect(sequenceIsWhole(events)).toBe(true);
    const kept = events.filter(({ data }) => data['from'] === 'later');
    expect(kept).toHaveLength(1);
    await rig.unitsAreGone();
  });

  it('can be cancelled by a person all the same', async () => {
    const { id } = await ended();
    await rig.client.cancelWorkUnit(id);
    const { workUnit } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['cancelled', 'cancelled_by_request']);
    await rig.unitsAreGone();
  });
});
