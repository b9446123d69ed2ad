/**
 * JSON bodies as they are meant: one value per name. JSON.parse keeps the last of two equal
 * names without a word, and whoever looked at the body before us may have kept the first.
 */
import type { FastifyInstance } from 'fastify';
import { OutliveError } from '../domain/errors.ts';
import { escapePointer } from './problem.ts';

/** Deeper than anything of ours; what walks a value by recursion must come back. */
export const DEPTH_MAX = 64;

interface Flaw {
  readonly kind: 'duplicate' | 'deep';
  /** JSON pointer; of a value that is too deep, of the field it lies in. */
  readonly path: string;
}

/** An object that is being read, or an array. */
interface Frame {
  readonly names: Set<string> | null;
  /** The name of the value that is being read, or its index. */
  at: string | number;
  /** The next string is a name. */
  nameIsDue: boolean;
}

const pointer = (frames: readonly Frame[]): string =>
  frames.map(({ at }) => `/${escapePointer(String(at))}`).join('');

/** Index of the quote that ends the string which begins at `start`. */
function endOfString(text: string, start: number): number {
  let index = start + 1;
  for (;;) {
    const quote = text.indexOf('"', index);
    let backslashes = 0;
    while (text[quote - 1 - backslashes] === '\\') backslashes++;
    if (backslashes % 2 === 0) return quote;
    index = quote + 1;
  }
}

/** Reads the string at `start` as a name where one is due. @returns false when it was there before. */
function takeName(frame: Frame | undefined, text: string, start: number, end: number): boolean {
  if (!frame?.nameIsDue || frame.names === null) return true;
  const name = JSON.parse(text.slice(start, end + 1)) as string;
  frame.at = name;
  frame.nameIsDue = false;
  if (frame.names.has(name)) return false;
  frame.names.add(name);
  return true;
}

function nextValue(frame: Frame | undefined): void {
  if (!frame) return;
  if (frame.names) frame.nameIsDue = true;
  else frame.at = Number(frame.at) + 1;
}

/** The first name that is there twice, or the first value that lies too deep. `text` is valid JSON. */
export function findFlaw(text: string): Flaw | null {
  const frames: Frame[] = [];
  for (let index = 0; index < text.length; index++) {
    const character = text[index];
    if (character === '"') {
      const end = endOfString(text, index);
      if (!takeName(frames.at(-1), text, index, end)) {
        return { kind: 'duplicate', path: pointer(frames) };
      }
      index = end;
    } else if (character === '{' || character === '[') {
      if (frames.length === DEPTH_MAX) return { kind: 'deep', path: pointer(frames.slice(0, 1)) };
      const isObject = character === '{';
      frames.push({ names: isObject ? new Set() : null, at: 0, nameIsDue: isObject });
    } else if (character === '}' || character === ']') {
      frames.pop();
    } else if (character === ',') {
      nextValue(frames.at(-1));
    }
  }
  return null;
}

function refusalOf({ kind, path }: Flaw): OutliveError {
  if (kind === 'duplicate') {
    return new OutliveError('duplicate_key', `${path} is there twice. Send each field once.`, {
      fields: [{ path, message: 'is there twice' }],
    });
  }
  return new OutliveError('malformed_body', `${path} is nested deeper than ${DEPTH_MAX} levels.`, {
    fields: [{ path, message: `is nested deeper than ${DEPTH_MAX} levels` }],
  });
}

/** Takes JSON bodies, and nothing else. */
export function useJsonBodies(app: FastifyInstance): void {
  // Fastify's own, which also refuses what would reach an object's prototype.
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers(); // Fastify takes text/plain by default, as a string.
  app.addContentTypeParser<string>(
    'application/json',
    { parseAs: 'string' },
    (request, body, done) =>
      parse(request, body, (error, value) => {
        const flaw = error ? null : findFlaw(body);
        if (flaw) done(refusalOf(flaw));
        else done(error, value);
      }),
  );
}
