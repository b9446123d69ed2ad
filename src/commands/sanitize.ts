/**
 * Text from models, tools and other people, made safe to print on a terminal:
 * an escape sequence in it must not move the cursor, set the title, fill the
 * clipboard or hide a line from the person who reads.
 */

// All control characters but tab and line feed; then what reorders or hides text: bidi controls,
// line and paragraph separators, zero width, the byte order mark, and the tag characters.
const UNSAFE =
  /[[\p{Cc}\p{Bidi_Control}\u200b\u2028\u2029\u2060\ufeff\u{e0000}-\u{e007f}]--[\t\n]]/gv;

function visible(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  return code <= 0xff ? `\\x${hex.padStart(2, '0')}` : `\\u{${hex}}`;
}

/** The text with every unsafe character written out as an escape; tab and line feed stay. */
export function sanitize(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(UNSAFE, visible);
}

/** The same on one line: white space becomes a single space. */
export function sanitizeLine(text: string): string {
  return sanitize(text).replace(/\s+/g, ' ').trim();
}
