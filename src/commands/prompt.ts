/** Where the prompt of `outlive run` comes from: the words, a file, or stdin. */
import { readFile } from 'node:fs/promises';
import { OutliveError } from '../domain/errors.ts';

const HOW =
  'Give it after "--" (outlive run -- fix the failing test) or with --prompt-file FILE ("-" reads stdin).';

const usage = (detail: string): OutliveError => new OutliveError('usage', detail);

export interface PromptSource {
  /** Words of the command line; `@x` and `-x` among them are words like any other. */
  readonly words: readonly string[];
  /** Value of --prompt-file. */
  readonly file: string | undefined;
  readonly readStdin: () => Promise<Uint8Array>;
}

/**
 * The prompt, word for word.
 * @throws OutliveError `usage` when there is none, more than one, or an empty one.
 */
export async function readPrompt({ words, file, readStdin }: PromptSource): Promise<string> {
  if (words.length > 0 && file !== undefined) {
    throw usage(`There are two prompts: words and --prompt-file ${file}. Give only one.`);
  }
  if (words.length === 0 && file === undefined) throw usage(`There is no prompt. ${HOW}`);
  const text = file === undefined ? words.join(' ') : await readText(file, readStdin);
  if (text.trim() !== '') return text;
  const source = file === undefined ? '' : ` (${file === '-' ? 'stdin' : file})`;
  throw usage(`The prompt is empty${source}. ${HOW}`);
}

async function readText(file: string, readStdin: () => Promise<Uint8Array>): Promise<string> {
  const bytes = file === '-' ? await readStdin() : await readPromptFile(file);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const name = file === '-' ? 'stdin' : file;
    throw usage(`The prompt in ${name} is not UTF-8 text. Convert it first.`);
  }
}

async function readPromptFile(file: string): Promise<Uint8Array> {
  try {
    return await readFile(file);
  } catch (error) {
    throw usage(`The prompt file cannot be read: ${(error as Error).message}.`);
  }
}
