/** Decisions as signed files: who can make them, when they are written, and how they get there. */
import { createHash, createPublicKey, verify } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { checkDecision, publicKeyOf } from '../../src/attempt/decision-files.ts';
import { decisionFileName, decisionText, type SignedDecision } from '../../src/domain/decisions.ts';
import type { ApprovalRow } from '../../src/store/approvals.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import { type Answers, createAnswers } from '../../src/supervisor/answers.ts';
import { decide, expireApprovals } from '../../src/supervisor/approval-decide.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { deliverDecisions } from '../../src/supervisor/decision-files.ts';
import { cleanUp, open, temporaryDirectory } from '../store/rig.ts';
import { ask, begin, type Question } from '../support/approvals.ts';
import { QueueRig } from '../support/core-queue.ts';

const APPROVE = { decision: 'approved', reason: null, fail: false, actor: 'user' } as const;
const DENY = { decision: 'denied', reason: 'not today', fail: false, actor: 'user' } as const;

afterEach(cleanUp);

interface Desk {
  readonly rig: QueueRig;
  readonly context: Context;
  readonly attempt: AttemptRow;
  readonly directory: string;
  question(known?: Question): ApprovalRow;
}

function desk(): Desk {
  const rig = new QueueRig(open());
  const decisionsDirectory = path.join(temporaryDirectory(), 'decisions');
  const context = { ...rig.context, settings: { ...rig.context.settings, decisionsDirectory } };
  const id = rig.submit({ runnerId: 'pi', prompt: 'go' });
  rig.claimAll();
  rig.run(id);
  const attempt = rig.active(id);
  const directory = path.join(decisionsDirectory, attempt.id);
  return { rig, context, attempt, directory, question: (known) => ask(context, attempt, known) };
}

const fileOf = ({ directory }: Desk, { toolCallId }: Pick<ApprovalRow, 'toolCallId'>): string =>
  path.join(directory, decisionFileName(createHash('sha256').update(toolCallId).digest('hex')));
const read = (file: string): SignedDecision =>
  JSON.parse(readFileSync(file, 'utf8')) as SignedDecision;
const written = ({ directory }: Desk): string[] =>
  existsSync(directory) ? readdirSync(directory) : [];

function holds({ signature, ...decision }: SignedDecision, publicDer: Buffer): boolean {
  const key = createPublicKey({ key: publicDer, format: 'der', type: 'spki' });
  return verify(null, Buffer.from(decisionText(decision)), key, Buffer.from(signature, 'base64'));
}

describe('the file of a decision', () => {
  it.each([APPROVE, DENY])(
    'says what was decided on which call, signed over all of it: $decision',
    async (request) => {
      const known = desk();
      const row = known.question();
      decide(known.context, row.id, request);
      expect(await deliverDecisions(known.context, known.attempt)).toBe(1);
      const decision = read(fileOf(known, row));
      expect(decision).toMatchObject({
        v: 1,
        approvalId: row.id,
        attemptId: known.attempt.id,
        toolCallId: row.toolCallId,
        fingerprint: row.fingerprint,
        decision: request.decision,
        reason: request.reason,
      });
      const { publicDer } = known.rig.store.approvals.signingKey('');
      expect(holds(decision, publicDer)).toBe(true);
      for (const field of Object.keys(decision).filter((name) => name !== 'signature')) {
        expect(holds({ ...decision, [field]: 'another' }, publicDer), field).toBe(false);
      }
    },
  );

  it('is what the wrapper believes, for this call of this attempt and no other', async () => {
    const known = desk();
    const row = known.question();
    decide(known.context, row.id, APPROVE);
    await deliverDecisions(known.context, known.attempt);
    const text = readFileSync(fileOf(known, row), 'utf8');
    const { publicDer } = known.rig.store.approvals.signingKey('');
    const key = publicKeyOf(publicDer.toString('base64'));
    const { toolCallId, fingerprint, attemptId } = row;
    const subject = { toolCallId, fingerprint, attemptId };
    expect(checkDecision(text, key, subject)).toMatchObject({ decision: 'approved' });
    for (const field of ['toolCallId', 'fingerprint', 'attemptId']) {
      expect(checkDecision(text, key, { ...subject, [field]: 'another' }), field).toBeTypeOf(
        'string',
      );
    }
  });

  it('is for its owner alone', async () => {
    const known = desk();
    const row = known.question();
    decide(known.context, row.id, APPROVE);
    await deliverDecisions(known.context, known.attempt);
    expect(statSync(known.directory).mode & 0o777).toBe(0o700);
    expect(statSync(fileOf(known, row)).mode & 0o777).toBe(0o600);
  });

  it('is made anew by the next daemon, byte for byte', async () => {
    const known = desk();
    const row = known.question();
    decide(known.context, row.id, APPROVE);
    await deliverDecisions(known.context, known.attempt);
    const before = readFileSync(fileOf(known, row), 'utf8');
    rmSync(known.directory, { recursive: true });
    await deliverDecisions({ ...known.context, runtimeInstanceId: 'the next' }, known.attempt);
    expect(readFileSync(fileOf(known, row), 'utf8')).toBe(before);
  });

  it('that is there is left as it is, and nothing is said to be new', async () => {
    const known = desk();
    const row = known.question();
    decide(known.context, row.id, APPROVE);
    mkdirSync(known.directory, { recursive: true });
    writeFileSync(fileOf(known, row), 'what somebody put there');
    expect(await deliverDecisions(known.context, known.attempt)).toBe(0);
    expect(readFileSync(fileOf(known, row), 'utf8')).toBe('what somebody put there');
  });

  it.each<[string, (known: Desk) => void]>([
    ['is not answered', (known) => void known.question()],
    [
      'expired',
      (known) => {
        known.question();
        known.rig.entropy.advance(3_600_001);
        expireApprovals(known.context);
      },
    ],
    [
      'began',
      (known) => {
        const row = known.question();
        decide(known.context, row.id, APPROVE);
        begin(known.context, known.attempt, row);
      },
    ],
    [
      'is of work that ended',
      (known) => {
        const row = known.question();
        decide(known.context, row.id, APPROVE);
        known.rig.end(known.attempt.workUnitId);
      },
    ],
  ])('is not there for a call that %s', async (_what, make) => {
    const known = desk();
    make(known);
    expect(await deliverDecisions(known.context, known.attempt)).toBe(0);
    expect(written(known)).toEqual([]);
  });

  it('is not there for a call that another attempt asked for', async () => {
    const known = desk();
    const row = known.question();
    decide(known.context, row.id, APPROVE);
    const other = { ...known.attempt, id: 'another' };
    expect(await deliverDecisions(known.context, other)).toBe(0);
    expect(written({ ...known, directory: path.join(known.directory, '..', 'another') })).toEqual(
      [],
    );
  });
});

/** The part of the supervisor that carries answers, and whom it told. */
function answering(known: Desk, context: Context = known.context) {
  const told: string[] = [];
  const answers: Answers = createAnswers(context, {
    hintOwner: (id) => told.push(`hint ${id}`),
    look: (id) => told.push(`look ${id}`),
    wake: () => told.push('wake'),
  });
  return { answers, told };
}

describe('answers', () => {
  it('are carried over, and whoever waits is told', async () => {
    const known = desk();
    const { answers, told } = answering(known);
    const row = known.question();
    answers.decide(row.id, APPROVE);
    await answers.close();
    expect(read(fileOf(known, row)).decision).toBe('approved');
    expect(told).toEqual([`hint ${row.workUnitId}`, 'wake', `look ${known.attempt.id}`]);
  });

  it('row 257: that a dead daemon left are carried over when their attempt is followed again', async () => {
    const known = desk();
    const row = known.question();
    decide(known.context, row.id, DENY);
    const { answers, told } = answering(known);
    answers.attached(known.attempt);
    answers.attached(known.attempt);
    await answers.close();
    expect(read(fileOf(known, row)).decision).toBe('denied');
    expect(told, 'the second found it there').toEqual([`look ${known.attempt.id}`]);
  });

  it('to many calls at once are each written whole, once', async () => {
    const known = desk();
    const { answers, told } = answering(known);
    const rows = Array.from({ length: 10 }, (_, n) => known.question({ toolCallId: `call_${n}` }));
    for (const { id } of rows) {
      answers.decide(id, APPROVE);
      answers.attached(known.attempt);
    }
    await answers.close();
    const { publicDer } = known.rig.store.approvals.signingKey('');
    for (const row of rows) expect(holds(read(fileOf(known, row)), publicDer)).toBe(true);
    expect(written(known)).toHaveLength(rows.length);
    expect(told.filter((word) => word.startsWith('look')).length).toBeGreaterThan(0);
  });

  it('that cannot be written stay decided and are tried again, until the daemon ends', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const known = desk();
      const decisions = path.dirname(known.directory);
      writeFileSync(decisions, 'a file where the directory belongs');
      const { answers, told } = answering(known);
      const row = known.question();
      answers.decide(row.id, APPROVE);
      expect(known.rig.store.approvals.get(row.id)?.status).toBe('approved');
      await vi.waitFor(() => expect(vi.getTimerCount()).toBe(1));
      rmSync(decisions);
      await vi.advanceTimersByTimeAsync(5_000);
      await vi.waitFor(() => expect(told).toContain(`look ${known.attempt.id}`));
      expect(read(fileOf(known, row)).decision).toBe('approved');
      await answers.close();
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('that cannot be written at the end leave no timer behind', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const known = desk();
      writeFileSync(path.dirname(known.directory), 'a file where the directory belongs');
      const { answers } = answering(known);
      answers.decide(known.question().id, APPROVE);
      await answers.close();
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it('with a key are given once; the same key on another question is refused', async () => {
    const known = desk();
    const { answers } = answering(known);
    const [one, two] = [known.question({ toolCallId: 'a' }), known.question({ toolCallId: 'b' })];
    const first = answers.decide(one.id, APPROVE, 'k');
    expect(answers.decide(one.id, APPROVE, 'k')).toEqual(first);
    expect(() => answers.decide(two.id, APPROVE, 'k')).toThrow(/used to approve approval/);
    expect(() => answers.decide(one.id, DENY, 'k')).toThrow(/used to approve approval/);
    await answers.close();
  });
});
