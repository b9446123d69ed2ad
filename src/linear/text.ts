/**
 * Text from models and tools, made fit for Linear's Markdown: bounded, nothing invisible,
 * no open code fence, and never a mention of the agent itself, which would call it again.
 * Sizes are in UTF-16 units.
 */

const ESC = String.fromCodePoint(0x1b);
const BEL = String.fromCodePoint(0x07);
// Escape sequences of a terminal: CSI, OSC, and the two-character ones.
const ESCAPES = new RegExp(
  String.raw`${ESC}(?:\[[0-?]*[ -/]*[@-~]|\][^${BEL}${ESC}]*(?:${BEL}|${ESC}\\)|[@-Z\\-_])`,
  'g',
);
// A NUL alone makes Linear's database refuse the whole text; bidi controls hide from the reader.
const UNSAFE = /[[\p{Cc}\p{Bidi_Control}\u2028\u2029\u2060\ufeff\u{e0000}-\u{e007f}]--[\t\n]]/gv;
const VISIBLE = /[^\p{C}\p{Z}\s]/u;

/** Without what a terminal or nobody sees; line ends as line feeds. */
export const clean = (text: string): string =>
  text.toWellFormed().replaceAll('\r\n', '\n').replace(ESCAPES, '').replace(UNSAFE, '');

/** Whether there is anything to see in it. */
export const isBlank = (text: string): boolean => !VISIBLE.test(text);

const literal = (text: string): string =>
  text.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&').replaceAll(/\s+/g, '\\s+');

/** Takes mentions of the given names out of a text: `@name`, and links to a profile. */
export function mentionStripper(names: readonly string[]): (text: string) => string {
  const wanted = names.map((name) => name.trim()).filter((name) => name !== '');
  if (wanted.length === 0) return (text) => text;
  const any = wanted
    .sort((a, b) => b.length - a.length)
    .map(literal)
    .join('|');
  const profile = new RegExp(`https?://linear\\.app/[^\\s/()]+/profiles/(${any})`, 'giu');
  const mention = new RegExp(`@+(?=${any})`, 'giu');
  return (text) => {
    let before: string;
    let after = text;
    // What is left may read as one again.
    do {
      before = after;
      after = before.replace(profile, '$1').replace(mention, '');
    } while (after !== before);
    return after;
  };
}

const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)$/;

/** The fence that is open at the end of a text, null where none is (CommonMark, 4.5). */
export function openFence(text: string): string | null {
  let open: string | null = null;
  for (const line of text.split('\n')) {
    const [, mark = '', rest = ''] = FENCE.exec(line) ?? [];
    if (mark === '') continue;
    if (open === null) {
      if (mark.startsWith('~') || !rest.includes('`')) open = mark;
    } else if (mark[0] === open[0] && mark.length >= open.length && rest.trim() === '') {
      open = null;
    }
  }
  return open;
}

/** The end of the last whole character at or before `at`. */
const boundary = (text: string, at: number): number => {
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code <= 0xdbff ? at - 1 : at;
};

const CUT = '…';

/** Markdown of at most `max` units: cut at its end, with its code fence closed. */
export function boundMarkdown(text: string, max: number): string {
  const fence = openFence(text);
  const whole = fence === null ? text : `${text}\n${fence}`;
  if (whole.length <= max) return whole;
  let room = max - CUT.length;
  for (;;) {
    const head = text.slice(0, boundary(text, room)) + CUT;
    const open = openFence(head);
    if (open === null) return head;
    const closed = `${head}\n${open}`;
    if (closed.length <= max) return closed;
    // A fence as long as the room is none that anybody meant.
    const less = closed.length - max;
    if (room <= less) return head.replaceAll(/[`~]/g, ' ');
    room -= less;
  }
}

/** One line of at most `max` units. */
export function oneLine(text: string, max: number): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= max
    ? line
    : `${line.slice(0, boundary(line, max - CUT.length)).trimEnd()}${CUT}`;
}

/** A text of at most about `max` units: head and tail around a note. */
export function cutMiddle(text: string, max: number): string {
  if (text.length <= max) return text;
  const head = boundary(text, Math.ceil(max / 2));
  let tail = text.length - Math.floor(max / 2);
  const code = text.charCodeAt(tail);
  if (code >= 0xdc00 && code <= 0xdfff) tail += 1;
  return `${text.slice(0, head)}\n[… ${tail - head} characters cut …]\n${text.slice(tail)}`;
}

/** A block of code that its content cannot end. */
export function codeBlock(text: string): string {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}
