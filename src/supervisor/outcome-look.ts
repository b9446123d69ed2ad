/**
 * Looks at what an ended run left: files, and the JSON it returned. Runs in a thread of its
 * own (outcome-worker.ts): a glob, a pattern of a schema or a dead file system may take for ever.
 */
import { globSync, type Stats, statSync } from 'node:fs';
import path from 'node:path';
import { findResult } from '../domain/outcome-result.ts';
import type { LeftEvidence } from '../domain/outcome-verdict.ts';
import type { RunnerId } from '../domain/work-unit.ts';
import { objectionTo, type Schema } from './result-schema.ts';

/** The kernel stamps files with a clock that ticks, the slowest a hundred times a second. */
const TICK_MS = 20;
/** Where a file system keeps whole seconds, the coarsest every other one. */
const COARSE_MS = 2_000;
/** Whoever shows a result walks through it. */
const DEPTH_MAX = 100;

/** What is to be looked at. Plain data: it goes to another thread. */
export interface LookRequest {
  readonly cwd: string;
  readonly outputs: readonly string[];
  /** What is older does not count, milliseconds since the epoch. */
  readonly since: number;
  readonly result: {
    readonly runnerId: RunnerId;
    readonly text: string;
    /** False where the text lacks its beginning. */
    readonly whole: boolean;
    readonly schema: Schema;
  } | null;
}

export interface Left extends LeftEvidence {
  /** The returned JSON that was accepted, as its text. */
  readonly json: string | null;
}

const isNew = ({ mtimeMs }: Stats, since: number): boolean =>
  mtimeMs + (mtimeMs % 1000 === 0 ? COARSE_MS : TICK_MS) >= since;

const fileAt = (name: string): Stats | null => {
  const info = statSync(name, { throwIfNoEntry: false });
  return info?.isFile() ? info : null;
};

/** One of many: what cannot be looked at is no file, and hides no other. */
const matchedAt = (name: string): Stats | null => {
  try {
    return fileAt(name);
  } catch {
    return null;
  }
};

function isWithin(cwd: string, name: string): boolean {
  const relative = path.relative(cwd, name);
  return relative !== '..' && !relative.startsWith('../');
}

/** Files that a path or glob names; a path that is a name as it stands is not taken for a glob. */
function filesOf(pattern: string, cwd: string): Stats[] {
  const literal = fileAt(path.resolve(cwd, pattern));
  if (literal) return [literal];
  const isRelative = !path.isAbsolute(pattern);
  return globSync(pattern, { cwd })
    .map((name) => path.resolve(cwd, name))
    .filter((name) => !isRelative || isWithin(cwd, name))
    .flatMap((name) => matchedAt(name) ?? []);
}

/** Why an output does not count, as a sentence; null when it is there. */
function lacking(pattern: string, cwd: string, since: number): string | null {
  try {
    const files = filesOf(pattern, cwd);
    if (files.some((info) => isNew(info, since))) return null;
    return files.length === 0
      ? `${pattern} is no file`
      : `${pattern} is older than the start (${new Date(since).toISOString()})`;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return `${pattern} cannot be looked at (${code ?? message})`;
  }
}

/** Whether something lies in more than so many arrays and objects. */
function isDeep(value: unknown, most: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return most === 0 || Object.values(value).some((part) => isDeep(part, most - 1));
}

function resultOf(asked: NonNullable<LookRequest['result']>): Pick<Left, 'result' | 'json'> {
  const found = findResult(asked.runnerId, asked.text, asked.whole);
  if (found.kind === 'missing') return { result: found.why, json: null };
  if (isDeep(found.value, DEPTH_MAX)) {
    return { result: `the result is nested more than ${DEPTH_MAX} deep`, json: null };
  }
  const objection = objectionTo(asked.schema, found.value);
  return { result: objection, json: objection === null ? JSON.stringify(found.value) : null };
}

/** Looks. Takes as long as it takes; reads only. */
export function look({ cwd, outputs, since, result }: LookRequest): Left {
  const missing = outputs.flatMap((pattern) => lacking(pattern, cwd, since) ?? []);
  return { missing, ...(result ? resultOf(result) : { result: null, json: null }) };
}
