/** What a census printed: one JSON object a line, each a subject that there is work about. */
import { z } from 'zod';
import { handleSchema } from './names.ts';
import { shortText } from './request.ts';
import { carried } from './text.ts';

/** Name of a variable as it comes after OUTLIVE_VAR_. */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

const lineSchema = z.object({
  subject: shortText,
  title: z.string().max(1_000).default(''),
  cwd: z.string().startsWith('/', 'must be an absolute path').max(4096).optional(),
  priority: z.int().min(-1000).max(1000).optional(),
  vars: z
    .record(z.string().regex(VARIABLE, 'is no name of a variable'), carried(z.string().max(32_768)))
    .default({}),
});

export type Subject = z.output<typeof lineSchema> & { readonly handle: string };

export interface BadLine {
  /** Counts from 1. */
  readonly line: number;
  readonly message: string;
}

export type Census =
  | { readonly ok: true; readonly subjects: readonly Subject[] }
  | { readonly ok: false; readonly bad: readonly BadLine[] };

export interface CensusTerms {
  /** The field that is the handle. */
  readonly handleFrom: string;
  /** Whether a line may do without a working directory. */
  readonly hasCwd: boolean;
}

const said = (error: z.ZodError, at = ''): string =>
  error.issues
    .map(
      ({ path, message }) => `${[at, ...path].filter((part) => part !== '').join('.')}: ${message}`,
    )
    .join('; ');

/** A subject, or what is wrong with its line. */
function parseLine(line: string, { handleFrom, hasCwd }: CensusTerms): Subject | string {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return 'it is not JSON';
  }
  const parsed = lineSchema.safeParse(value);
  if (!parsed.success) return said(parsed.error);
  const handle = handleSchema.safeParse((value as Record<string, unknown>)[handleFrom]);
  if (!handle.success) return said(handle.error, handleFrom);
  const names = Object.keys(parsed.data.vars).map((name) => name.toUpperCase());
  if (new Set(names).size < names.length) return 'vars: two names differ only in their case';
  if (!hasCwd && parsed.data.cwd === undefined)
    return 'cwd: the driver has none, so each line needs it';
  return { ...parsed.data, handle: handle.data };
}

/**
 * Reads a census. One bad line makes all of it bad: nobody knows what else is wrong with it.
 * Empty lines are passed over, further fields are the census's own, and of a subject that
 * comes twice the first line counts.
 */
export function parseCensus(text: string, terms: CensusTerms): Census {
  const subjects = new Map<string, Subject>();
  const bad: BadLine[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const parsed = parseLine(line, terms);
    if (typeof parsed === 'string') bad.push({ line: index + 1, message: parsed });
    else if (!subjects.has(parsed.subject)) subjects.set(parsed.subject, parsed);
  }
  return bad.length > 0 ? { ok: false, bad } : { ok: true, subjects: [...subjects.values()] };
}

/** Bad lines that a message names. */
const NAMED = 5;

/** All of it as a sentence. */
export function badLinesText(bad: readonly BadLine[]): string {
  const named = bad.slice(0, NAMED).map(({ line, message }) => `line ${line}: ${message}`);
  const more = bad.length > NAMED ? [`and ${bad.length - NAMED} more`] : [];
  return `The census is not usable, so nothing was started. ${[...named, ...more].join('; ')}`;
}
