/** What an attempt is told of approvals, what a start of the daemon may write, what a person is told. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { RESUME_CAPABILITIES } from '../../src/domain/approval.ts';
import { fingerprintText, type ToolPolicy } from '../../src/domain/decisions.ts';
import { repairApprovals } from '../../src/recovery/approvals.ts';
import type { ApprovalRow } from '../../src/store/approvals.ts';
import type { WorkUnitRow } from '../../src/store/work-units.ts';
import { decide } from '../../src/supervisor/approval-decide.ts';
import { approvalSpec, toolPolicyOf } from '../../src/supervisor/approval-spec.ts';
import { explain } from '../../src/supervisor/explain.ts';
import { DEFAULT_POLICIES } from '../../src/supervisor/policies.ts';
import { APPROVE, DENY, lose, running, type Waiting } from '../store/approval-rig.ts';
import { cleanUp, open, raw } from '../store/rig.ts';
import { ask, begin, type Question } from '../support/approvals.ts';
import { QueueRig } from '../support/core-queue.ts';
import { dump } from '../support/dump.ts';

afterEach(cleanUp);

const approval = ({ rig }: Waiting, id: string) => rig.store.approvals.get(id);

/** A policy that can be told from the others. */
const named = (reason: string): ToolPolicy => ({
  rules: [{ effect: 'ask', tool: '*', reason }],
  otherwise: 'allow',
});

describe('the policy of a work unit', () => {
  const approvals = {
    ...DEFAULT_POLICIES.approvals,
    policy: named('workspace'),
    kinds: { task_run: named('kind') },
    channels: { eng: named('channel') },
  };
  const policyOf = (workUnit: WorkUnitRow): ToolPolicy => {
    const { context } = new QueueRig(open(), {}, {}, { approvals });
    return toolPolicyOf(context, workUnit);
  };
  const unit = (known: object): WorkUnitRow =>
    ({ request: {}, channelId: null, kind: 'media_job', ...known }) as unknown as WorkUnitRow;
  const request = { toolPolicy: named('request') };

  it.each<[string, object]>([
    ['request', { request, channelId: 'eng', kind: 'task_run' }],
    ['channel', { channelId: 'eng', kind: 'task_run' }],
    ['kind', { channelId: 'other', kind: 'task_run' }],
    ['kind', { kind: 'task_run' }],
    ['workspace', { channelId: 'other' }],
    ['workspace', {}],
    ['request', { request }],
  ])('is that of its %s: %j', (whose, known) => {
    expect(policyOf(unit(known)).rules[0]?.reason).toBe(whose);
  });

  it('that is given and lets everything go still goes before the others', () => {
    const toolPolicy = { rules: [], otherwise: 'allow' } as const;
    const own = unit({ request: { toolPolicy }, channelId: 'eng', kind: 'task_run' });
    expect(policyOf(own)).toEqual(toolPolicy);
  });
});

const PATHS = { decisions: '/decisions' };
const BASH = { tool: 'bash', arguments: { command: 'make deploy' }, cwd: '/' };
const fingerprint = (call: typeof BASH): string =>
  createHash('sha256').update(fingerprintText(call)).digest('hex');

/** The question is decided after its attempt is gone, and a replacement is there. */
function replaced(
  question: Question,
  request: typeof APPROVE | typeof DENY,
): Waiting & { row: ApprovalRow } {
  const waiting = running();
  const { rig, id } = waiting;
  const row = ask(rig.context, rig.active(id), question);
  lose(waiting);
  decide(rig.context, row.id, request);
  rig.claimAll();
  return { ...waiting, row: approval(waiting, row.id) ?? row };
}

function specOf({ rig, id }: Waiting) {
  const workUnit = rig.store.workUnits.get(id);
  if (!workUnit) throw new Error('no work unit');
  return approvalSpec(rig.context, workUnit, rig.active(id), PATHS);
}

describe('what a replacement is granted', () => {
  it('row 246: just the call that was approved, to be run by the wrapper where it is whole', () => {
    const known = replaced({ fingerprint: fingerprint(BASH) }, APPROVE);
    expect(specOf(known).grants).toEqual([
      {
        ...BASH,
        approvalId: known.row.id,
        toolCallId: known.row.toolCallId,
        fingerprint: fingerprint(BASH),
        decision: 'approved',
        reason: null,
        execute: true,
      },
    ]);
  });

  it.each<[string, Question, typeof APPROVE | typeof DENY]>([
    ['of which something was redacted or cut', { fingerprint: 'e'.repeat(64) }, APPROVE],
    [
      'of another tool: it holds for one identical call of the model',
      { tool: 'write', fingerprint: fingerprint({ ...BASH, tool: 'write' }) },
      APPROVE,
    ],
    ['that was denied', { fingerprint: fingerprint(BASH) }, DENY],
  ])('is not executed for a call %s', (_what, question, request) => {
    const known = replaced(question, request);
    const { decision, reason } = request;
    expect(specOf(known).grants).toMatchObject([{ decision, reason, execute: false }]);
  });

  it('is nothing to the attempt that asked, and nothing of what others were granted', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id), { fingerprint: fingerprint(BASH) });
    decide(rig.context, row.id, APPROVE);
    expect(specOf(waiting).grants).toEqual([]);
  });

  it('comes with the public half of the key and without the private one', () => {
    const known = replaced({}, APPROVE);
    const spec = specOf(known);
    const { publicDer, privateDer } = known.rig.store.approvals.signingKey('');
    expect(spec).toMatchObject({
      publicKey: publicDer.toString('base64'),
      decisions: '/decisions',
      expiresMs: DEFAULT_POLICIES.approvals.expireAfterMs,
    });
    expect(JSON.stringify(spec)).not.toContain(privateDer.toString('base64'));
  });

  it('row 113: is not executed for a runner that is not registered for it', () => {
    const { rig, id } = replaced({ fingerprint: fingerprint(BASH) }, APPROVE);
    const workUnit = rig.store.workUnits.get(id);
    if (!workUnit) throw new Error('no work unit');
    const command = { ...workUnit, runnerId: 'command' } as const;
    const { grants } = approvalSpec(rig.context, command, rig.active(id), PATHS);
    expect(grants).toMatchObject([{ execute: false }]);
  });

  it('row 113, row 247: is told by the registry of runners alone; no runner resumes by itself', () => {
    expect(RESUME_CAPABILITIES).toEqual({
      pi: { nativeResume: false, hostApprovalContinuation: ['bash'] },
      command: { nativeResume: false, hostApprovalContinuation: [] },
    });
  });
});

const source = (name: string): string =>
  readFileSync(fileURLToPath(new URL(`../../src/${name}`, import.meta.url)), 'utf8');

describe('row 335: questions at the start of a daemon', () => {
  it('are looked at by code that has no writer of attempts, leases or slots', () => {
    const text = source('recovery/approvals.ts');
    const imported = [...text.matchAll(/from '(.*)'/g)].map(([, module = '']) => module);
    const mayBe =
      /^\.\.\/(domain\/work-unit|supervisor\/(approval-commits|approval-ledger|context))\.ts$/;
    expect(imported.filter((module) => !mayBe.test(module))).toEqual([]);
    expect(text).not.toMatch(/attempts|resources|moveAttempt|moveWorkUnit|queue|diagnostics/);
  });

  /** Tables that a repair changed. */
  function repaired({ rig, directory }: Waiting): { ids: readonly string[]; changed: string[] } {
    const db = raw(directory);
    const before = dump(db);
    const ids = repairApprovals(rig.context);
    const after = dump(db);
    const changed = Object.keys(after).filter(
      (table) => JSON.stringify(after[table]) !== JSON.stringify(before[table]),
    );
    return { ids, changed };
  }

  it.each<[string, (waiting: Waiting) => void]>([
    ['waits beside a live attempt', () => undefined],
    ['is suspended', (waiting) => void lose(waiting)],
    [
      'is decided and bound to a replacement',
      (waiting) => {
        lose(waiting);
        const [row] = waiting.rig.store.approvals.open(waiting.id);
        if (row) decide(waiting.rig.context, row.id, APPROVE);
        waiting.rig.claimAll();
      },
    ],
  ])('change nothing of work that %s', (_what, make) => {
    const waiting = running();
    ask(waiting.rig.context, waiting.rig.active(waiting.id));
    make(waiting);
    expect(repaired(waiting)).toEqual({ ids: [], changed: [] });
  });

  it('row 238: of work that has ended are closed, and only they and their events change', () => {
    const waiting = running();
    const { rig, id, directory } = waiting;
    const row = ask(rig.context, rig.active(id));
    rig.cancel(id);
    lose(waiting);
    // As a daemon of before would have left it.
    raw(directory).prepare(`UPDATE approvals SET status = 'pending', checkpoint = 'waiting'`).run();
    const { ids, changed } = repaired(waiting);
    expect(ids).toEqual([id]);
    // The row of the work unit counts its events.
    const may = ['approvals', 'runtime_events', 'work_units', 'store_state'];
    expect(changed.filter((table) => !may.includes(table))).toEqual([]);
    expect(approval(waiting, row.id)).toMatchObject({ status: 'dropped', checkpoint: 'closed' });
    expect(repaired(waiting), 'repeatable').toEqual({ ids: [], changed: [] });
  });

  it('whose call was begun in work that ended keep that its effect is unknown', () => {
    const waiting = running();
    const { rig, id, directory } = waiting;
    const row = ask(rig.context, rig.active(id));
    decide(rig.context, row.id, APPROVE);
    begin(rig.context, rig.active(id), row);
    rig.cancel(id);
    lose(waiting);
    raw(directory)
      .prepare(`UPDATE approvals SET checkpoint = 'waiting', failure_code = NULL`)
      .run();
    expect(repaired(waiting).ids).toEqual([id]);
    expect(approval(waiting, row.id)).toMatchObject({
      checkpoint: 'resume_failed',
      failureCode: 'effect_unknown',
    });
  });
});

describe('explain', () => {
  const summary = ({ rig, id }: Waiting): string => {
    const workUnit = rig.store.workUnits.get(id);
    return workUnit ? explain(rig.context, workUnit).summary : '';
  };

  it('names what a waiting work unit asks, until when, and how to answer', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const one = ask(rig.context, rig.active(id), { toolCallId: 'a' });
    const two = ask(rig.context, rig.active(id), { toolCallId: 'b', tool: 'write' });
    const said = (row: ApprovalRow): string =>
      `${row.tool}, until ${row.expiresAt} (outlive approve ${row.id})`;
    expect(summary(waiting)).toBe(`It waits for a person: ${said(one)}; ${said(two)}.`);
    decide(rig.context, one.id, APPROVE);
    expect(summary(waiting)).toBe(`It waits for a person: ${said(two)}.`);
  });

  it('says the same of suspended work, and why its attempt is gone', () => {
    const waiting = running();
    const row = ask(waiting.rig.context, waiting.rig.active(waiting.id));
    lose(waiting);
    expect(summary(waiting)).toContain(`outlive approve ${row.id}`);
    const workUnit = waiting.rig.store.workUnits.get(waiting.id);
    const explained = workUnit ? explain(waiting.rig.context, workUnit) : null;
    expect(explained?.waiting, 'it is in no queue').toBeNull();
    expect(explained?.attempts[0]?.attempt.status).toBe('lost');
  });

  it('says after the answer what the queued work waits for, and in the end what became of it', () => {
    const waiting = running();
    const { rig, id } = waiting;
    const row = ask(rig.context, rig.active(id));
    lose(waiting);
    decide(rig.context, row.id, APPROVE);
    expect(summary(waiting)).toBe('It is queued: it is next in line.');
    rig.claimAll();
    rig.run(id);
    begin(rig.context, rig.active(id), row);
    lose(waiting);
    expect(summary(waiting)).toContain('approval_resume_effect_unknown');
    expect(summary(waiting)).toContain(`bash (approval ${row.id})`);
  });
});
