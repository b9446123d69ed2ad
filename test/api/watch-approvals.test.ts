/** Row 340: a client that follows the workspace over what becomes of a question while it is away. */
import { setTimeout as pause } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView, WorkUnitView } from '../../src/api/schemas.ts';
import type { ApprovalView } from '../../src/api/schemas-approvals.ts';
import { type Client, createClient } from '../../src/client/client.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { suspend } from '../../src/supervisor/end.ts';
import { GONE, gathered } from '../store/approval-rig.ts';
import { askOf, runningPi, startAttempt } from '../support/api-approvals.ts';
import { atTheEnd, bootApi, cleanUp, type Rig } from '../support/api-rig.ts';
import { RecordingProxy } from '../support/recording-proxy.ts';

let rig: Rig;
let proxy: RecordingProxy;
beforeEach(async () => {
  rig = await bootApi();
  proxy = await RecordingProxy.before(rig.socketPath);
  atTheEnd(() => rig.context.supervisor.close());
});
afterEach(cleanUp);

const APPROVE = { decision: 'approved', reason: null, fail: false, actor: 'user' } as const;

/** The active attempt is proved gone. */
function lose(id: string): void {
  const attemptId = rig.store.workUnits.get(id)?.activeAttemptId ?? '';
  const intent = rig.store.attempts.get(attemptId)?.intent ?? null;
  conclude(rig.inner, attemptId, gathered({ ...GONE, intent }));
}

function claim(id: string, approvalId: string): void {
  lose(id);
  rig.context.supervisor.decide(approvalId, APPROVE);
  startAttempt(rig, id);
}

interface Commit {
  readonly cause: string;
  readonly act: (id: string, approvalId: string) => void;
  /** What a client that has reloaded must know. */
  readonly unit: WorkUnitView['status'];
  readonly approval: Partial<ApprovalView>;
}

const COMMITS: readonly Commit[] = [
  {
    cause: 'resume_claim',
    act: claim,
    unit: 'running',
    approval: { status: 'approved', checkpoint: 'resume_pending' },
  },
  {
    cause: 'suspended:approval_wait',
    act: (id) => {
      suspend(rig.inner, rig.store.workUnits.get(id)?.activeAttemptId ?? '', 'approval_wait');
      lose(id);
    },
    unit: 'waiting_for_approval',
    approval: { status: 'pending', checkpoint: 'waiting' },
  },
  {
    cause: 'work_ended',
    act: (id) => {
      rig.context.supervisor.cancel(id, { actor: 'user', reason: null });
      lose(id);
    },
    unit: 'cancelled',
    approval: { status: 'dropped', checkpoint: 'closed' },
  },
  {
    cause: 'checkpoint_quarantine',
    act: (id, approvalId) => {
      lose(id);
      rig.context.supervisor.decide(approvalId, APPROVE);
      const db = new Database(rig.store.file);
      db.prepare(`UPDATE approvals SET bound_attempt_id = 'nobody'`).run();
      db.close();
      startAttempt(rig, id);
    },
    unit: 'running',
    approval: { checkpoint: 'resume_failed', failureCode: 'lineage_broken' },
  },
];

/** What a screen would keep: both rows of the question, reloaded at every event about them. */
class Screen {
  readonly client: Client = createClient({
    socketPath: proxy.socketPath,
    follow: { minPauseMs: 1, maxPauseMs: 5, giveUpMs: 30_000 },
  });
  readonly log: string[] = [];
  readonly stop = new AbortController();
  readonly snapshots: (readonly string[])[] = [];
  unit: WorkUnitView | null = null;
  approval: ApprovalView | null = null;
  /** Called once, before the rows of the event of this cause are loaded. */
  onCause: { readonly cause: string; readonly act: () => Promise<void> } | null = null;
  readonly watching: Promise<void>;

  constructor() {
    this.watching = this.client.watchWorkspace({
      signal: this.stop.signal,
      onSnapshot: ({ workUnits, questions, position }) => {
        this.log.push(`snapshot ${position}`);
        this.snapshots.push(questions.map(({ id }) => id));
        this.unit = workUnits[0] ?? this.unit;
        this.approval = questions[0] ?? this.approval;
      },
      onEvent: (event) => this.#heed(event),
    });
  }

  async #heed({ type, workUnitId, data, position }: EventView): Promise<void> {
    if (type !== 'approval.changed') return;
    const interruption = this.onCause;
    if (interruption && interruption.cause === data['cause']) {
      this.onCause = null;
      this.log.push(`interrupted at ${position}`);
      await interruption.act();
    }
    this.unit = await this.client.getWorkUnit(workUnitId);
    this.approval = await this.client.getApproval(String(data['approvalId']));
    this.log.push(`loaded for ${String(data['cause'])} at ${position}`);
  }

  /** Resolves once the log has such a line; rejects when the watch ended without. */
  async until(line: (text: string) => boolean): Promise<void> {
    const failed = this.watching.then(() => {
      throw new Error(`the watch ended: ${this.log.join(', ')}`);
    });
    const found = async (): Promise<void> => {
      while (!this.log.some(line)) await pause(2);
    };
    await Promise.race([found(), failed]);
  }

  async close(): Promise<void> {
    this.stop.abort();
    await this.watching;
  }
}

const cursors = (): number[] =>
  proxy.requests.flatMap((asked) => {
    const cursor = /^GET \/events\?afterPosition=(\d+)$/.exec(asked)?.[1];
    return cursor === undefined ? [] : [Number(cursor)];
  });

describe.each(COMMITS)('row 340: over a commit of $cause', ({ cause, act, unit, approval }) => {
  it('a client that was away reloads both rows before its cursor moves, and submits nothing', async () => {
    const id = await runningPi(rig, 'issue42');
    const asked = askOf(rig, id);
    const screen = new Screen();
    await screen.until((line) => line.startsWith('snapshot'));
    expect(screen.snapshots).toEqual([[asked.id]]);
    await proxy.cut();
    act(id, asked.id);
    const rows = rig.counts();
    // The connection is lost once more while the rows are loaded: the event has to come again.
    screen.onCause = {
      cause,
      act: async () => {
        await proxy.cut();
        setTimeout(() => void proxy.restore(), 20);
      },
    };
    await proxy.restore();
    await screen.until((line) => line.startsWith(`loaded for ${cause}`));
    await screen.close();
    expect(screen.unit).toMatchObject({ id, status: unit });
    expect(screen.approval).toMatchObject({ id: asked.id, ...approval });
    const interrupted = screen.log.find((line) => line.startsWith('interrupted')) ?? '';
    const position = Number(interrupted.split(' ').at(-1));
    expect(screen.log, 'the same event again').toContain(`loaded for ${cause} at ${position}`);
    expect(Math.max(...cursors()), 'no cursor beyond what was loaded').toBeLessThan(position);
    expect(proxy.requests.filter((request) => !request.startsWith('GET '))).toEqual([]);
    expect(rig.counts()).toEqual(rows);
  });

  it('a client that finds another daemon loads a snapshot with the open questions first', async () => {
    const id = await runningPi(rig, 'issue42');
    const asked = askOf(rig, id);
    const screen = new Screen();
    await screen.until((line) => line.startsWith('snapshot'));
    await proxy.cut();
    act(id, asked.id);
    const { runtime } = rig.context;
    Object.assign(rig.context, { runtime: () => ({ ...runtime(), runtimeInstanceId: 'another' }) });
    const before = proxy.requests.length;
    await proxy.restore();
    await screen.until((line) => line.startsWith('snapshot') && screen.log.indexOf(line) > 0);
    await screen.close();
    const isOpen = rig.store.approvals.get(asked.id)?.status === 'pending';
    expect(screen.snapshots.at(-1)).toEqual(isOpen ? [asked.id] : []);
    const later = proxy.requests.slice(before);
    expect(later).toContain('GET /approvals?status=pending&limit=1000');
    expect(later.filter((request) => !request.startsWith('GET '))).toEqual([]);
    const position = Number(screen.log.at(-1)?.split(' ').at(-1));
    expect(cursors().at(-1), 'the cursor of the snapshot').toBe(position);
  });
});
