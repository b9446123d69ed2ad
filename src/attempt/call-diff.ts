/** What an edit or a write would make of its file, as a bounded unified diff for the person who is asked. */
import { readFileSync, statSync } from 'node:fs';
import type { Call } from '../domain/decisions.ts';
import { cutMiddle } from './bounded-text.ts';
import { errorCode } from './files.ts';
import { listOf, objectOf, stringOf } from './json.ts';
import { placeOf } from './places.ts';
import { unifiedDiff } from './unified-diff.ts';

const DIFF_BYTES = 16 * 1024;
/** A larger file is not read for a diff. */
const MAX_FILE_BYTES = 2 * 1024 * 1024;

interface Edit {
  readonly oldText: string;
  readonly newText: string;
}

/** Null for other tools. `clean` takes secrets out before anything is cut. */
export function callDiff(
  call: Call,
  home: string | undefined,
  clean: (text: string) => string,
): string | null {
  if (call.tool !== 'edit' && call.tool !== 'write') return null;
  const given = objectOf(call.arguments);
  const path = stringOf(given['path']);
  if (path === null) return null;
  return cutMiddle(
    clean(diffOf(call.tool, given, path, placeOf(path, call.cwd, home))),
    DIFF_BYTES,
  );
}

function diffOf(
  tool: 'edit' | 'write',
  given: Readonly<Record<string, unknown>>,
  path: string,
  file: string,
): string {
  const before = contentOf(file);
  if (typeof before !== 'string') return `(no diff: ${before.problem})\n`;
  if (tool === 'write') return unifiedDiff(path, before, stringOf(given['content']) ?? '');
  const edits = listOf(given['edits'])
    .map(objectOf)
    .map(({ oldText, newText }) => ({
      oldText: linesOf(stringOf(oldText) ?? ''),
      newText: linesOf(stringOf(newText) ?? ''),
    }));
  const after = applied(before, edits);
  return after === null ? bareEdits(path, edits) : unifiedDiff(path, before, after);
}

/** Pi edits with LF, whatever the file has. */
const linesOf = (text: string): string => text.replaceAll(/\r\n?/g, '\n');

/** Empty where there is no file yet. */
function contentOf(file: string): string | { readonly problem: string } {
  try {
    const { size } = statSync(file);
    if (size > MAX_FILE_BYTES) return { problem: `the file has ${size} bytes` };
    return linesOf(readFileSync(file, 'utf8'));
  } catch (error) {
    const code = errorCode(error);
    return code === 'ENOENT' ? '' : { problem: `the file cannot be read: ${code}` };
  }
}

/** Each edit is looked for in the original; null where one is not there exactly once, which Pi may forgive. */
function applied(before: string, edits: readonly Edit[]): string | null {
  const places = edits.map(({ oldText }) => before.indexOf(oldText));
  const isPlain = edits.every(
    ({ oldText }, index) =>
      oldText !== '' && places[index] !== -1 && before.lastIndexOf(oldText) === places[index],
  );
  if (!isPlain) return null;
  let after = '';
  let at = 0;
  const ordered = edits
    .map((edit, index) => ({ ...edit, place: places[index] ?? 0 }))
    .sort((a, b) => a.place - b.place);
  for (const { oldText, newText, place } of ordered) {
    if (place < at) return null;
    after += before.slice(at, place) + newText;
    at = place + oldText.length;
  }
  return after + before.slice(at);
}

/** Where nobody can say here what Pi will find, what it is told to find. */
function bareEdits(path: string, edits: readonly Edit[]): string {
  const signed = (sign: string, text: string): string =>
    text.replaceAll(/^/gm, sign).concat(text.endsWith('\n') ? '' : '\n');
  const blocks = edits.map(
    ({ oldText, newText }, index) =>
      `@@ edit ${index + 1}: its place is not certain @@\n${signed('-', oldText)}${signed('+', newText)}`,
  );
  return `--- ${path}\n+++ ${path}\n${blocks.join('')}`;
}
