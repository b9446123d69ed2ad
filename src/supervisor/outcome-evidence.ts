/**
 * What an ended run left behind, as far as its contract asks: files, and the JSON it returned.
 * Read at once and in one go, so that the verification can be first in the tree.
 */
import { globSync, type Stats, statSync } from 'node:fs';
import path from 'node:path';
import type { OutcomeContract } from '../domain/outcome.ts';
import { findResult } from '../domain/outcome-result.ts';
import type { LeftEvidence } from '../domain/outcome-verdict.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { OutcomeRow } from '../store/outcomes.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { capturedTail } from './artifacts.ts';
import type { Context } from './context.ts';
import { objectionTo } from './result-schema.ts';

/** Names that one glob may look at: with more it would hold up the daemon. */
const LOOKS_MAX = 100_000;
/** Longest result, bytes of its line. */
const RESULT_BYTES = 64 * 1024;
/** The kernel stamps files with a clock that ticks, the slowest a hundred times a second. */
const TICK_MS = 20;
/** Where a file system keeps whole seconds, the coarsest every other one. */
const COARSE_MS = 2_000;

class TooMany extends Error {}

const isNew = ({ mtimeMs }: Stats, since: number): boolean =>
  mtimeMs + (mtimeMs % 1000 === 0 ? COARSE_MS : TICK_MS) >= since;

const fileAt = (name: string): Stats | null => {
  const info = statSync(name, { throwIfNoEntry: false });
  return info?.isFile() ? info : null;
};

function isWithin(cwd: string, name: string): boolean {
  const relative = path.relative(cwd, name);
  return relative !== '..' && !relative.startsWith('../');
}

/** Files that a path or glob names; a path that is a name as it stands is not taken for a glob. */
function matches(pattern: string, cwd: string): string[] {
  const literal = path.resolve(cwd, pattern);
  const isRelative = !path.isAbsolute(pattern);
  let looks = 0;
  const found =
    fileAt(literal) === null
      ? globSync(pattern, {
          cwd,
          exclude: () => {
            looks += 1;
            if (looks > LOOKS_MAX) throw new TooMany();
            return false;
          },
        }).map((name) => path.resolve(cwd, name))
      : [literal];
  return found.filter((name) => !isRelative || isWithin(cwd, name));
}

/** Why an output does not count, as a sentence; null when it is there. */
function lacking(pattern: string, cwd: string, since: number): string | null {
  try {
    const files = matches(pattern, cwd).flatMap((name) => fileAt(name) ?? []);
    if (files.some((info) => isNew(info, since))) return null;
    return files.length === 0
      ? `${pattern} is no file`
      : `${pattern} is older than the start (${new Date(since).toISOString()})`;
  } catch (error) {
    if (error instanceof TooMany) return `${pattern} has more than ${LOOKS_MAX} names to look at`;
    const { code, message } = error as NodeJS.ErrnoException;
    return `${pattern} cannot be looked at (${code ?? message})`;
  }
}

/**
 * When the first attempt of this run was claimed: a little before anything of it ran. When it
 * was seen to run can be later than its first file, where the daemon was away or slow.
 */
function startOf({ store }: Context, row: OutcomeRow): number {
  const before = store.outcomes.endBefore(row);
  const first = store.attempts
    .listByWorkUnit(row.workUnitId)
    .find(({ attemptNumber }) => attemptNumber > before);
  return Date.parse(first?.createdAt ?? row.createdAt);
}

interface Result {
  /** What is wrong with it; null when nothing is, or none was asked for. */
  readonly objection: string | null;
  /** Its JSON text. */
  readonly json: string | null;
}

function resultOf(
  { settings }: Context,
  asked: NonNullable<OutcomeContract['result']>,
  attempt: AttemptRow,
): Result {
  const { text, whole } =
    attempt.runnerId === 'command'
      ? capturedTail(settings, attempt, 'stdout', RESULT_BYTES)
      : { text: attempt.lastWord?.text ?? '', whole: true };
  const found = findResult(attempt.runnerId, text, whole);
  if (found.kind === 'missing') return { objection: found.why, json: null };
  const objection = objectionTo(asked, found.value);
  return { objection, json: objection === null ? JSON.stringify(found.value) : null };
}

export interface Left extends LeftEvidence {
  /** The returned JSON that was accepted, as its text. */
  readonly json: string | null;
}

/** Looks at what the run of this row left. Reads only; may be repeated. */
export function gatherLeft(
  context: Context,
  row: OutcomeRow,
  { cwd }: Pick<WorkUnitRow, 'cwd'>,
  { outputs = [], result }: OutcomeContract,
): Left {
  const since = outputs.length === 0 ? 0 : startOf(context, row);
  const missing = outputs.flatMap((pattern) => lacking(pattern, cwd, since) ?? []);
  const attempt = row.attemptId === null ? null : context.store.attempts.get(row.attemptId);
  if (!result) return { missing, result: null, json: null };
  if (!attempt) return { missing, result: 'the result is missing: nothing ran', json: null };
  const { objection, json } = resultOf(context, result, attempt);
  return { missing, result: objection, json };
}
