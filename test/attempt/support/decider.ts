/** Decides on calls as the daemon does: signed files in a directory, whole or absent. */
import { createHash, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import {
  type ApprovalSpec,
  type Decision,
  decisionFileName,
  decisionText,
  fingerprintText,
  type Grant,
  type ToolPolicy,
} from '../../../src/domain/decisions.ts';
import type { SpoolLine } from '../../../src/domain/spool.ts';

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Every call of the named tools is asked about, all others are allowed. */
export const asks = (...tools: readonly string[]): ToolPolicy => ({
  rules: tools.map((tool) => ({ effect: 'ask', tool, reason: `${tool} is asked about` })),
  otherwise: 'allow',
});

export class Decider {
  readonly directory = path.join(mkdtempSync(path.join(tmpdir(), 'outlive-decisions-')), 'd');
  readonly #keys = generateKeyPairSync('ed25519');
  #count = 0;

  constructor() {
    this.makeDirectory();
    onTestFinished(() => rmSync(path.dirname(this.directory), { recursive: true }));
  }

  makeDirectory(): void {
    mkdirSync(this.directory, { recursive: true });
  }

  removeDirectory(): void {
    rmSync(this.directory, { recursive: true });
  }

  /** The part of launch.json. */
  spec(policy: ToolPolicy, grants: readonly Grant[] = []): ApprovalSpec {
    const key = this.#keys.publicKey.export({ format: 'der', type: 'spki' });
    const publicKey = key.toString('base64');
    return { policy, expiresMs: 60_000, decisions: this.directory, publicKey, grants };
  }

  /** Answers a question of the first attempt of a lab; `changes` make it a forgery, or another key does. */
  decide(
    question: SpoolLine,
    decision: Decision['decision'],
    changes: Partial<Decision> = {},
    key: KeyObject = this.#keys.privateKey,
  ): Decision {
    this.#count += 1;
    const toolCallId = String(question.data['toolCallId']);
    const decided: Decision = {
      v: 1,
      approvalId: `approval-${this.#count}`,
      attemptId: 'attempt-1',
      toolCallId,
      fingerprint: String(question.data['fingerprint']),
      decision,
      reason: null,
      decidedAt: new Date().toISOString(),
      ...changes,
    };
    const signature = sign(null, Buffer.from(decisionText(decided)), key).toString('base64');
    this.place(toolCallId, JSON.stringify({ ...decided, signature }));
    return decided;
  }

  /** Puts any text in the place of a call's decision. */
  place(toolCallId: string, text: string): void {
    const file = path.join(this.directory, decisionFileName(sha256(toolCallId)));
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  }
}

/** A key that nobody has asked to sign. */
export const strangersKey = (): KeyObject => generateKeyPairSync('ed25519').privateKey;

/** What an earlier attempt asked for and a person decided. */
export function grant(
  call: { tool: string; arguments: unknown; cwd: string },
  changes: Partial<Grant> = {},
): Grant {
  return {
    approvalId: 'approval-of-old',
    toolCallId: 'call-of-old',
    fingerprint: sha256(fingerprintText(call)),
    decision: 'approved',
    reason: null,
    execute: true,
    ...call,
    ...changes,
  };
}

/** Lines of the types, each as type and data. */
export const told = (
  lines: readonly SpoolLine[],
  ...types: readonly SpoolLine['type'][]
): readonly [string, SpoolLine['data']][] =>
  lines.filter(({ type }) => types.includes(type)).map(({ type, data }) => [type, data]);
