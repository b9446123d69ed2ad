/** Reads a spool the strict way: every property that each spool must have is checked on each read. */
import { readFileSync } from 'node:fs';
import {
  type LastWord,
  lastWordSchema,
  openedSchema,
  type SpoolLine,
} from '../../../src/domain/spool.ts';
import { strictLine } from '../../support/spool-line.ts';

export const MAX_LINE_BYTES = 64 * 1024;

/** The whole lines of a spool and what is torn at its end. */
export interface Spool {
  readonly lines: readonly SpoolLine[];
  readonly torn: string;
}

/** Throws at the first line that breaks a promise of the format. */
export function readSpool(file: string): Spool {
  const texts = readFileSync(file, 'utf8').split('\n');
  const torn = texts.pop() ?? '';
  const lines = texts.map((text, index) => checkLine(text, index));
  return { lines, torn };
}

/** The last word; throws when the last line is another, or there are two. */
export function lastWordOf(lines: readonly SpoolLine[]): LastWord {
  const words = lines.filter((line) => line.type === 'runner.finished');
  const last = lines.at(-1);
  if (words.length !== 1 || last?.type !== 'runner.finished') {
    throw new Error(`${words.length} last words, the last line is ${last?.type}`);
  }
  return lastWordSchema.parse(last.data);
}

function checkLine(text: string, index: number): SpoolLine {
  if (Buffer.byteLength(text) >= MAX_LINE_BYTES) throw new Error(`line ${index + 1} is too long`);
  const line = strictLine(text);
  if (line.n !== index + 1) throw new Error(`line ${index + 1} has n ${line.n}`);
  if ((index === 0) !== (line.type === 'attempt.opened')) {
    throw new Error(`line ${index + 1} is ${line.type}`);
  }
  if (index === 0) openedSchema.parse(line.data);
  return line;
}
