/**
 * Carries decisions to the wrapper: one signed file each, in a directory that only the daemon
 * writes. Whoever can write there as well has no key to sign with.
 */
import { createHash, createPrivateKey, sign } from 'node:crypto';
import { mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import {
  type Decision,
  decisionFileName,
  decisionText,
  type SignedDecision,
} from '../domain/decisions.ts';
import type { ApprovalRow } from '../store/approvals.ts';
import type { AttemptRow } from '../store/attempts.ts';
import { attemptPaths, writeDurably } from './attempt-directory.ts';
import type { Context } from './context.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function decisionOf(row: ApprovalRow): Decision | null {
  if (row.status !== 'approved' && row.status !== 'denied') return null;
  return {
    v: 1,
    approvalId: row.id,
    attemptId: row.attemptId,
    toolCallId: row.toolCallId,
    fingerprint: row.fingerprint,
    decision: row.status,
    reason: row.decisionReason,
    decidedAt: row.decidedAt ?? row.requestedAt,
  };
}

function signed(context: Context, decision: Decision): SignedDecision {
  const { privateDer } = context.store.approvals.signingKey(decision.decidedAt);
  const key = createPrivateKey({ key: privateDer, format: 'der', type: 'pkcs8' });
  const signature = sign(null, Buffer.from(decisionText(decision)), key).toString('base64');
  return { ...decision, signature };
}

async function exists(file: string): Promise<boolean> {
  try {
    await stat(file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/**
 * Writes the file of every decision that this attempt has not acted on and has no file for.
 * Repeatable: a daemon that died between the decision and its file left this to the next.
 * @returns how many were written.
 */
export async function deliverDecisions(
  context: Context,
  attempt: Pick<AttemptRow, 'id' | 'workUnitId' | 'nonce' | 'conversation'>,
): Promise<number> {
  const { decisions } = attemptPaths(context.settings, attempt);
  let written = 0;
  for (const row of context.store.approvals.open(attempt.workUnitId)) {
    const decision = row.attemptId === attempt.id ? decisionOf(row) : null;
    if (decision === null || row.startAttemptId !== null) continue;
    const file = path.join(decisions, decisionFileName(sha256(row.toolCallId)));
    if (await exists(file)) continue;
    await mkdir(decisions, { recursive: true, mode: 0o700 });
    await writeDurably(file, JSON.stringify(signed(context, decision)));
    written += 1;
  }
  return written;
}
