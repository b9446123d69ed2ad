/**
 * Keeps secrets out of everything the wrapper writes, before it is written.
 *
 * Found are known values, as they are and as they stand inside JSON (also JSON inside
 * JSON) or a URL, and tokens whose shape tells what they are. Not found is a secret that
 * is encoded (base64, hex, reversed), that the model or a program takes apart itself (a
 * character a line, two blocks of text, two streams), that is nobody's known value and has
 * no shape (a password in some file), or that is longer than {@link HELD_LENGTH}.
 */

/** Takes a text that holds JSON or plain output and returns it without secrets; valid JSON stays so. */
export interface Redact {
  (text: string): string;
  /** Where something begins that may be a secret once more text comes; the text's length for nothing. */
  readonly openAt: (text: string) => number;
}

// A shorter value would also match innocent text.
const MIN_SECRET_LENGTH = 8;
/** Longest beginning of a secret that waits for its end, UTF-16 units. */
export const HELD_LENGTH = 64 * 1024;

const PEM_BEGIN = '-----BEGIN ';
const PEM_NAME = '(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----';
/** Whole, or what there is of it: lines of base64, real or escaped line ends between them. */
const PEM = `${PEM_BEGIN}${PEM_NAME}(?:(?:(?!-----)[^"]){0,32768}-----END ${PEM_NAME}|(?:(?:\\s|\\\\+[nrt])+[A-Za-z0-9+/=]{24,})*)`;
// An escape or a colour before it ends in a letter and is still no part of it.
const WORD_BEGINS = '(?<![A-Za-z0-9])|(?<=\\\\[nrtbf]|\\\\u[0-9a-fA-F]{4}|\\[[0-9;]*m)';

/** Tokens that can be told from other text, each with how it begins. */
const SHAPES: readonly { readonly leads: readonly string[]; readonly pattern: string }[] = [
  // With a digit or capital: words joined by hyphens are no key.
  { leads: ['sk-'], pattern: `(?:${WORD_BEGINS})sk-(?=[a-z_-]{0,64}[0-9A-Z])[A-Za-z0-9_-]{16,}` },
  {
    leads: ['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_'],
    pattern: 'gh[pousr]_[A-Za-z0-9]{20,}',
  },
  { leads: ['github_pat_'], pattern: 'github_pat_[A-Za-z0-9_]{20,}' },
  {
    leads: ['xoxa-', 'xoxb-', 'xoxe-', 'xoxo-', 'xoxp-', 'xoxr-', 'xoxs-'],
    pattern: 'xox[abeoprs]-[A-Za-z0-9-]{10,}',
  },
  { leads: ['AKIA', 'ASIA'], pattern: 'A[KS]IA[0-9A-Z]{16}' },
  { leads: ['AIza'], pattern: 'AIza[A-Za-z0-9_-]{35}' },
  { leads: ['glpat-'], pattern: 'glpat-[A-Za-z0-9_.-]{16,}' },
  { leads: ['lin_api_', 'lin_oauth_'], pattern: 'lin_(?:api|oauth)_[A-Za-z0-9]{16,}' },
  {
    leads: ['eyJ'],
    pattern: 'eyJ[A-Za-z0-9_-]{8,1024}\\.eyJ[A-Za-z0-9_-]{8,16384}\\.[A-Za-z0-9_-]{8,}',
  },
  {
    leads: ['Bearer ', 'bearer ', 'BEARER '],
    pattern:
      '(?<=\\b(?:[Bb]earer|BEARER)\\s{1,4})(?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{16,}',
  },
  { leads: [PEM_BEGIN], pattern: PEM },
];
const LEADS = SHAPES.flatMap(({ leads }) => leads);
const ANY_LEAD = new RegExp(LEADS.map(literal).join('|'));
const OF_TOKEN = /[A-Za-z0-9._~+/=-]/;
const BEARER_END = /\b(?:[Bb]earer|BEARER)\s{1,4}$/;
const BEARER_LENGTH = 10;

interface Form {
  readonly text: string;
  readonly mark: string;
}

/** Replaces the given values, by name, and every token that {@link SHAPES} knows. */
export function redactor(secrets: Readonly<Record<string, string>>): Redact {
  const forms = Object.entries(secrets)
    .filter(([, value]) => value.length >= MIN_SECRET_LENGTH)
    .flatMap(([name, value]) => formsOf(value).map((text) => ({ text, mark: markOf(name) })))
    // Where one value is the beginning of another, the whole of the longer one goes.
    .sort((a, b) => b.text.length - a.text.length);
  const marks = new Map(forms.map(({ text, mark }) => [text, mark]));
  const patterns = [
    ...forms.map(({ text }) => literal(text)),
    ...SHAPES.map(({ pattern }) => pattern),
  ];
  const pattern = new RegExp(patterns.join('|'), 'g');
  const redact = (text: string): string =>
    text.replace(pattern, (found) => marks.get(found) ?? '[redacted]');
  return Object.assign(redact, { openAt: (text: string) => openAt(text, forms, pattern) });
}

/** A name goes into JSON text as it is. */
const markOf = (name: string): string => `[redacted ${name.replaceAll(/[^\w.:/-]/g, '_')}]`;

/** As it is, inside JSON, inside JSON inside JSON, in a URL; each also as bytes that were read as latin1. */
function formsOf(value: string): string[] {
  const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);
  const once = inJson(value);
  const all = [value, once, inJson(once), encodeURIComponent(value.toWellFormed())];
  const bytes = all.map((text) => Buffer.from(text, 'utf8').toString('latin1'));
  return [...new Set([...all, ...bytes])];
}

function literal(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, '\\$&');
}

function openAt(whole: string, forms: readonly Form[], pattern: RegExp): number {
  const skipped = Math.max(0, whole.length - HELD_LENGTH);
  const text = whole.slice(skipped);
  let open = Math.min(openShape(text), ...forms.map((form) => openForm(text, form.text)));
  // Never within one that is whole: its first half would go out alone.
  for (const { index, 0: found } of text.matchAll(pattern)) {
    if (index < open && open < index + found.length) open = index;
  }
  return skipped + open;
}

/** Where the text ends in the beginning of `form`. */
function openForm(text: string, form: string): number {
  const first = form.charAt(0);
  for (let at = Math.max(0, text.length - form.length + 1); ; at += 1) {
    at = text.indexOf(first, at);
    if (at === -1) return text.length;
    if (form.startsWith(text.slice(at))) return at;
  }
}

function openShape(text: string): number {
  const opens = LEADS.map((lead) => openForm(text, lead));
  let token = text.length;
  while (token > 0 && OF_TOKEN.test(text.charAt(token - 1))) token -= 1;
  const lead = ANY_LEAD.exec(text.slice(token));
  if (lead) opens.push(token + lead.index);
  const before = Math.max(0, token - BEARER_LENGTH);
  const bearer = BEARER_END.exec(text.slice(before, token));
  if (bearer) opens.push(before + bearer.index);
  const key = text.lastIndexOf(PEM_BEGIN);
  if (key !== -1 && isOpenKey(text.slice(key))) opens.push(key);
  return Math.min(...opens);
}

const KEY_WHOLE = new RegExp(`^${PEM_BEGIN}${PEM_NAME}[^"]*?-----END [A-Z0-9 ]+-----`);
const KEY_BEGUN = /^-----BEGIN [A-Z0-9 ]*(?:-{0,4}$|-----)/;

/** Not for certificates and the like, which need not wait for their end. */
function isOpenKey(text: string): boolean {
  if (KEY_WHOLE.test(text) || !KEY_BEGUN.test(text)) return false;
  const named = /^-----BEGIN ([A-Z0-9 ]*)-----/.exec(text);
  return named === null || named[1]?.includes('PRIVATE KEY') === true;
}

/** Redacts a text that comes in pieces: what may be the beginning of a secret waits for the next. */
export class RedactedStream {
  readonly #redact: Redact;
  #held = '';

  constructor(redact: Redact) {
    this.#redact = redact;
  }

  /** What may be written now. */
  push(text: string): string {
    const all = this.#held + text;
    const cut = this.#redact.openAt(all);
    this.#held = all.slice(cut);
    return this.#redact(all.slice(0, cut));
  }

  /** What still waits; nothing follows it. */
  end(): string {
    const rest = this.#redact(this.#held);
    this.#held = '';
    return rest;
  }
}

/** A copy of the value in which no string holds a secret. */
export function redactValue(redact: Redact, value: unknown): unknown {
  const text = JSON.stringify(value);
  if (text === undefined) return value;
  const clean = redact(text);
  return clean === text ? value : JSON.parse(clean);
}
