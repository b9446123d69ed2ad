/** Reads the part of launch.json about approvals. Strict: what is not understood must not be allowed. */
import type { ApprovalSpec, Grant, ToolPolicy, ToolRule } from '../domain/decisions.ts';
import { FieldReader, LaunchFileError } from './field-reader.ts';
import { isObject } from './json.ts';

const EFFECTS = ['allow', 'ask', 'deny'] as const;

/** Absent in files of a daemon before approvals: then everything is allowed and nothing asked. */
export function readApprovals(raw: unknown, file: string): ApprovalSpec | null {
  if (raw === undefined || raw === null) return null;
  if (!isObject(raw)) throw new LaunchFileError(`${file}: approvals is not an object`);
  const read = new FieldReader(raw, `${file}: approvals`);
  return {
    policy: readPolicy(read.object('policy')),
    expiresMs: read.count('expiresMs'),
    decisions: read.absolutePath('decisions'),
    publicKey: read.text('publicKey'),
    grants: read.objects('grants').map(readGrant),
  };
}

function readPolicy(read: FieldReader): ToolPolicy {
  read.known('rules', 'otherwise');
  return {
    rules: read.objects('rules').map(readRule),
    otherwise: read.word('otherwise', EFFECTS),
  };
}

function readRule(read: FieldReader): ToolRule {
  read.known('effect', 'tool', 'argument', 'path', 'reason');
  return {
    effect: read.word('effect', EFFECTS),
    tool: read.text('tool'),
    ...(read.has('argument') && { argument: readArgument(read.object('argument')) }),
    ...(read.has('path') && { path: read.word('path', ['inside', 'outside'] as const) }),
    ...(read.has('reason') && { reason: read.note('reason') ?? undefined }),
  };
}

function readArgument(read: FieldReader): NonNullable<ToolRule['argument']> {
  read.known('name', 'pattern');
  const pattern = read.text('pattern');
  try {
    new RegExp(pattern);
  } catch (error) {
    throw new LaunchFileError(`${read.where}: ${error instanceof Error ? error.message : pattern}`);
  }
  return { ...(read.has('name') && { name: read.text('name') }), pattern };
}

const readGrant = (read: FieldReader): Grant => ({
  approvalId: read.text('approvalId'),
  toolCallId: read.text('toolCallId'),
  tool: read.text('tool'),
  fingerprint: read.text('fingerprint'),
  arguments: read.any('arguments'),
  cwd: read.absolutePath('cwd'),
  decision: read.word('decision', ['approved', 'denied'] as const),
  reason: read.note('reason'),
  execute: read.flag('execute'),
});
