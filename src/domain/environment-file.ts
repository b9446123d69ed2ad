/**
 * Files of variables as systemd.exec(5) has them (`EnvironmentFile=`): KEY=VALUE a line, lines
 * that begin with # or ; are comments, values may be quoted, a backslash continues a line.
 * What systemd warns of and passes over is refused here: a variable that is not there is
 * found too late. Pure; no message holds a value.
 */
import { nameProblem, valueProblem } from './environment.ts';

export type EnvironmentFile =
  | { readonly values: Readonly<Record<string, string>> }
  | {
      /** Counts from 1. */
      readonly line: number;
      readonly problem: string;
    };

const isSpace = (character: string): boolean => /[ \t\r]/.test(character);
/** Characters that a backslash before them makes ordinary inside double quotes. */
const ESCAPED_IN_QUOTES = '"\\`$';

/** Reads a text of variables; of two with one name the later counts. */
export function parseEnvironmentFile(text: string): EnvironmentFile {
  const reader = new Reader(text.startsWith('\uFEFF') ? text.slice(1) : text);
  const values: [string, string][] = [];
  while (reader.skipToName()) {
    const line = reader.line;
    const name = reader.upTo('=');
    if (name === null) return { line, problem: 'there is no "=" in it' };
    const value = reader.value();
    if (value === null) return { line, problem: `the quotes of ${name} are not closed` };
    const wrongName = nameProblem(name);
    if (wrongName) return { line, problem: `"${name.slice(0, 64)}" ${wrongName}` };
    const wrongValue = valueProblem(value);
    if (wrongValue) return { line, problem: `the value of ${name} ${wrongValue}` };
    values.push([name, value]);
  }
  return { values: Object.fromEntries(values) };
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Of the next character, from 1. */
  get line(): number {
    return this.#text.slice(0, this.#at).split('\n').length;
  }

  /** Past white space and comments; false at the end of the text. */
  skipToName(): boolean {
    for (;;) {
      const next = this.#text[this.#at];
      if (next === undefined) return false;
      if (next === '#' || next === ';') this.#toLineEnd();
      else if (next === '\n' || isSpace(next)) this.#at += 1;
      else return true;
    }
  }

  /** What stands before `mark` in this line, without the mark; null when there is none. */
  upTo(mark: string): string | null {
    const end = this.#text.indexOf('\n', this.#at);
    const found = this.#text.indexOf(mark, this.#at);
    if (found === -1 || (end !== -1 && end < found)) return null;
    const text = this.#text.slice(this.#at, found).trimEnd();
    this.#at = found + 1;
    return text;
  }

  /** A value with the end of its line; null when its quotes are not closed. */
  value(): string | null {
    let value = '';
    for (;;) {
      this.#skipSpace();
      const next = this.#text[this.#at];
      if (next !== '"' && next !== "'") return value + this.#plain();
      this.#at += 1;
      const quoted = next === '"' ? this.#inDoubleQuotes() : this.#inSingleQuotes();
      if (quoted === null) return null;
      value += quoted;
    }
  }

  #skipSpace(): void {
    while (isSpace(this.#text[this.#at] ?? '')) this.#at += 1;
  }

  #toLineEnd(): void {
    const end = this.#text.indexOf('\n', this.#at);
    this.#at = end === -1 ? this.#text.length : end + 1;
  }

  /** To the end of the line, without the white space before that. */
  #plain(): string {
    let value = '';
    let kept = 0;
    for (;;) {
      const next = this.#text[this.#at];
      this.#at += 1;
      if (next === undefined || next === '\n') return value.slice(0, kept);
      if (next !== '\\') {
        value += next;
        if (!isSpace(next)) kept = value.length;
        continue;
      }
      const escaped = this.#text[this.#at];
      this.#at += 1;
      if (escaped !== undefined && escaped !== '\n') value += escaped;
      kept = value.length;
    }
  }

  #inSingleQuotes(): string | null {
    const end = this.#text.indexOf("'", this.#at);
    if (end === -1) return null;
    const value = this.#text.slice(this.#at, end);
    this.#at = end + 1;
    return value;
  }

  #inDoubleQuotes(): string | null {
    let value = '';
    for (;;) {
      const next = this.#text[this.#at];
      this.#at += 1;
      if (next === undefined) return null;
      if (next === '"') return value;
      if (next !== '\\') {
        value += next;
        continue;
      }
      const escaped = this.#text[this.#at] ?? '';
      this.#at += 1;
      if (ESCAPED_IN_QUOTES.includes(escaped)) value += escaped;
      else if (escaped !== '\n') value += `\\${escaped}`;
    }
  }
}
