/** Finds the JSON that a runner returned in what it said. */
import type { RunnerId } from './work-unit.ts';

export type Found =
  | { readonly kind: 'json'; readonly value: unknown }
  | { readonly kind: 'missing'; readonly why: string };

/** What the wrapper puts where it cut a text. */
const CUT = /\[… \d+ bytes cut …\]/;
const FENCE = /^[ \t]*```json[ \t]*\r?\n([\s\S]*?)^[ \t]*```[ \t]*$/gm;

const missing = (why: string): Found => ({ kind: 'missing', why });

function parsed(text: string): Found | null {
  try {
    return { kind: 'json', value: JSON.parse(text) };
  } catch {
    return null;
  }
}

/** Of a command: its last line of output that is not empty. `whole` is false where the text lacks its beginning. */
function ofCommand(stdout: string, whole: boolean): Found {
  const lines = stdout.split('\n').map((line) => line.trim());
  const at = lines.findLastIndex((line) => line !== '');
  const line = lines[at] ?? '';
  if (line === '') return missing('the result is missing: it printed nothing on stdout');
  const found = parsed(line);
  if (found) return found;
  const cut = (at === 0 && !whole) || CUT.test(line) || CUT.test(lines[at - 1] ?? '');
  if (cut)
    return missing('the result is missing: its last line of stdout was too long and was cut');
  return missing('the result is missing: its last line of stdout is no JSON');
}

/** Of an agent: its final text, or the last fence of JSON in it. */
function ofAgent(text: string): Found {
  if (text.trim() === '') return missing('the result is missing: there is no final text');
  const whole = parsed(text);
  if (whole) return whole;
  const last = [...text.matchAll(FENCE)].at(-1)?.[1];
  const fenced = last === undefined ? null : parsed(last);
  if (fenced) return fenced;
  if (CUT.test(text)) {
    return missing('the result is missing: the final text was too long, and the JSON was cut');
  }
  return missing(
    last === undefined
      ? 'the result is missing: the final text is no JSON and has no ```json block'
      : 'the result is missing: the last ```json block of the final text is no JSON',
  );
}

/** `whole` says that `text` has all there was, from its beginning. */
export const findResult = (runner: RunnerId, text: string, whole: boolean): Found =>
  runner === 'command' ? ofCommand(text, whole) : ofAgent(text);
