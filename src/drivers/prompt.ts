/** The prompt of a driver's run: where it comes from, and what is put into it. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import type { DriverSpec } from '../domain/driver.ts';
import type { Subject } from '../domain/driver-census.ts';
import { PROMPT_MAX } from '../domain/request.ts';

/** What is wrong with a prompt, as the rest of a sentence. */
export class PromptProblem extends Error {}

/** In UTF-8 no prompt is longer. */
const BYTES_MAX = 3 * PROMPT_MAX;

class NoFile extends Error {}

/** Reads what cannot hold the daemon up: no FIFO, no device, nothing without end. */
function plainFile(file: string): Buffer {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const info = fstatSync(fd);
    if (!info.isFile()) throw new NoFile('is no plain file');
    if (info.size > BYTES_MAX) throw new NoFile(`is larger than ${BYTES_MAX} bytes`);
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** The text as it is written; null for a command. @throws PromptProblem for a file that is of no use. */
export function promptText({ run }: DriverSpec): string | null {
  const { prompt, promptFile: file } = run;
  if (prompt !== undefined) return prompt;
  if (file === undefined) return null;
  const unusable = (why: string): PromptProblem =>
    new PromptProblem(`the prompt file ${file} ${why}`);
  let bytes: Buffer;
  try {
    bytes = plainFile(file);
  } catch (error) {
    if (error instanceof NoFile) throw unusable(error.message);
    const { code } = error as NodeJS.ErrnoException;
    throw unusable(code === 'ENOENT' ? 'does not exist' : `cannot be read (${code})`);
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw unusable('is not UTF-8 text');
  }
  if (text.trim() === '') throw unusable('is empty');
  return text;
}

const PLACE = /\{\{\s*(?:(handle|subject|title)|vars\.([A-Za-z_][A-Za-z0-9_]*))\s*\}\}/g;

/**
 * Replaces what is known in double braces; other braces are the prompt's own, and what is put
 * in is not looked through again. @throws PromptProblem for a variable that the census does not give.
 */
export function filledPrompt(text: string, subject: Subject): string {
  return text.replaceAll(PLACE, (_, field?: 'handle' | 'subject' | 'title', variable = '') => {
    if (field) return subject[field];
    const value = Object.hasOwn(subject.vars, variable) ? subject.vars[variable] : undefined;
    if (value !== undefined) return value;
    throw new PromptProblem(`the prompt names vars.${variable}, which the census does not give`);
  });
}
