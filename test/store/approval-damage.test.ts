/** Spools that are not whole, behind questions to a person: what may have been done is not done again. */
import { appendFileSync, mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { decide } from '../../src/supervisor/approval-decide.ts';
import { createIngest } from '../../src/supervisor/ingest.ts';
import { end, evidence, lastWord } from '../property/evidence.ts';
import { FINGERPRINT } from '../support/approvals.ts';
import { APPROVE, GONE, lose, running, type Waiting } from './approval-rig.ts';
import { cleanUp, raw } from './rig.ts';

afterEach(cleanUp);

const UNKNOWN = 'approval_resume_effect_unknown';
const CALL = { toolCallId: 'call_1', tool: 'bash', fingerprint: FINGERPRINT };

/** A run, its spool, and its reader. */
class Spooled {
  readonly waiting: Waiting = running();
  readonly #file: string;
  #n = 0;

  constructor() {
    const directory = path.join(this.waiting.directory, 'attempt');
    mkdirSync(directory);
    this.#file = path.join(directory, 'events.jsonl');
  }

  get attempt() {
    return this.waiting.rig.active(this.waiting.id);
  }

  get unit() {
    return this.waiting.rig.store.workUnits.get(this.waiting.id);
  }

  get row() {
    const [row] = this.waiting.rig.store.approvals.listOfWorkUnit(this.waiting.id);
    if (!row) throw new Error('nobody asked');
    return row;
  }

  line(type: string, data: object): string {
    const ts = new Date(this.waiting.rig.entropy.now()).toISOString();
    return `${JSON.stringify({ v: 1, n: ++this.#n, ts, type, data })}\n`;
  }

  write(type: string, data: object): void {
    appendFileSync(this.#file, this.line(type, data));
  }

  writeRaw(text: string): void {
    appendFileSync(this.#file, text);
  }

  truncate(bytes: number): void {
    truncateSync(this.#file, bytes);
  }

  remove(): void {
    rmSync(this.#file);
  }

  /** Another daemon's reader each time. */
  read(last = false): Promise<void> {
    const ingest = createIngest(this.waiting.rig.context, this.attempt.id, this.#file);
    return last ? ingest.finish(true) : ingest.catchUp();
  }

  async ask(): Promise<void> {
    writeFileSync(this.#file, '');
    const expiresAt = new Date(this.waiting.rig.entropy.now() + 3_600_000).toISOString();
    const asked = { ...CALL, arguments: { command: 'make' }, cwd: '/', diff: null, reason: null };
    this.write('approval.requested', { ...asked, expiresAt });
    await this.read();
  }

  approve(): void {
    decide(this.waiting.rig.context, this.row.id, APPROVE);
  }

  begin(): void {
    this.write('tool.start', { ...CALL, approvalId: this.row.id, arguments: {}, fenced: true });
  }

  async lose(): Promise<void> {
    await this.read(true);
    lose(this.waiting);
  }
}

async function asking(): Promise<Spooled> {
  const spooled = new Spooled();
  await spooled.ask();
  return spooled;
}

describe('after the answer', () => {
  it('a line that cannot be read: what was done is not known', async () => {
    const spooled = await asking();
    spooled.approve();
    spooled.writeRaw('{"v":1,"n":2,\0\0\0}\n');
    await spooled.lose();
    expect(spooled.unit?.errorCode).toBe(UNKNOWN);
  });

  it('the same, found by a clock that was set back meanwhile', async () => {
    const spooled = await asking();
    spooled.approve();
    spooled.writeRaw('{"v":1,"n":2,\0\0\0}\n');
    spooled.waiting.rig.entropy.advance(-120_000);
    await spooled.lose();
    expect(spooled.unit?.errorCode).toBe(UNKNOWN);
  });

  it('the file is gone: what was done is not known', async () => {
    const spooled = await asking();
    spooled.approve();
    spooled.begin();
    spooled.remove();
    await spooled.lose();
    expect(spooled.unit?.errorCode).toBe(UNKNOWN);
  });

  it('the file is shorter than what was read of it: what was done is not known', async () => {
    const spooled = await asking();
    spooled.approve();
    spooled.truncate(10);
    await spooled.lose();
    expect(spooled.unit?.errorCode).toBe(UNKNOWN);
  });

  it('a start that cannot be read, and a provider that fails: not tried again', async () => {
    const spooled = await asking();
    spooled.approve();
    spooled.writeRaw('{"v":1,"n":2,\0\0\0}\n');
    spooled.write('tool.end', { ...CALL, isError: false, result: 'done' });
    await spooled.read(true);
    const word = lastWord({ verdict: 'error', code: 'rate_limited' });
    lose(spooled.waiting, evidence({ end: end('exit-code exited 1'), lastWord: word }));
    expect(spooled.unit).toMatchObject({ status: 'failed', errorCode: UNKNOWN });
    expect(spooled.row).toMatchObject({
      checkpoint: 'resume_failed',
      failureCode: 'effect_unknown',
    });
  });

  it('a replacement that was never seen to run, and whose spool is gone: not done a third time', async () => {
    const spooled = await asking();
    spooled.approve();
    await spooled.lose();
    const { rig, id } = spooled.waiting;
    expect(rig.claimAll()).toEqual([id]);
    spooled.remove();
    await spooled.read(true);
    lose(spooled.waiting, { ...GONE, opened: null });
    expect(spooled.unit).toMatchObject({ status: 'failed', errorCode: UNKNOWN });
    expect(rig.claimAll()).toEqual([]);
  });

  it('a line that cannot be read, and a start that can: the start decides', async () => {
    const spooled = await asking();
    spooled.approve();
    spooled.writeRaw('{"v":1,"n":2,\0\0\0}\n');
    spooled.begin();
    spooled.write('tool.end', { ...CALL, isError: false, result: 'done' });
    await spooled.lose();
    expect(spooled.unit?.errorCode).not.toBe(UNKNOWN);
    expect(spooled.row).toMatchObject({ checkpoint: 'closed', ended: true });
  });
});

describe('before the answer', () => {
  it('a line that cannot be read: nothing can have begun by then', async () => {
    const spooled = await asking();
    spooled.writeRaw('{"v":1,"n":2,\0\0\0}\n');
    await spooled.lose();
    spooled.approve();
    expect(spooled.unit?.status).toBe('queued');
    expect(spooled.waiting.rig.claimAll()).toEqual([spooled.waiting.id]);
  });

  it('a file cut while its run lives hides what is written after the answer: not known', async () => {
    const spooled = await asking();
    spooled.truncate(10);
    await spooled.read();
    spooled.approve();
    spooled.begin(); // Below what was read before: nobody sees it.
    await spooled.lose();
    expect(spooled.unit?.errorCode).toBe(UNKNOWN);
  });

  it('a file cut, and its run is gone before somebody answers: nothing can have begun', async () => {
    const spooled = await asking();
    spooled.truncate(10);
    await spooled.lose();
    spooled.approve();
    expect(spooled.unit?.status).toBe('queued');
  });
});

describe('a store that was put back from before the answer', () => {
  it('knows a start without an answer: the question is over, the run goes on, no second start', async () => {
    const spooled = await asking();
    spooled.begin();
    await spooled.read();
    expect(spooled.unit?.status).toBe('running');
    expect(spooled.row).toMatchObject({ status: 'dropped', startAttemptId: spooled.attempt.id });
    await spooled.lose();
    expect(spooled.unit?.errorCode).toBe(UNKNOWN);
  });

  it('knows a start and its end: nothing waits, nothing is done again', async () => {
    const spooled = await asking();
    spooled.begin();
    spooled.write('tool.end', { ...CALL, isError: false, result: 'done' });
    await spooled.read();
    expect(spooled.attempt.status).toBe('started');
    expect(spooled.row.checkpoint).toBe('closed');
  });

  it('hears that the call was denied: nobody is asked any more', async () => {
    const spooled = await asking();
    spooled.write('approval.resolved', { ...CALL, resolution: 'denied' });
    await spooled.read();
    expect(spooled.unit?.status).toBe('running');
    expect(spooled.row).toMatchObject({ status: 'dropped', checkpoint: 'closed' });
  });
});

describe('queued work whose question is not settled', () => {
  it('is set aside, holds nobody up, and goes on once it is', async () => {
    const spooled = await asking();
    await spooled.lose();
    const { rig, id, directory } = spooled.waiting;
    // As no commit of this build leaves it.
    raw(directory).prepare(`UPDATE work_units SET status = 'queued' WHERE id = ?`).run(id);
    const other = rig.submit({ priority: -5 });
    expect(rig.claimAll()).toEqual([other]);
    rig.end(other);
    spooled.approve();
    expect(rig.claimAll()).toEqual([id]);
  });
});
