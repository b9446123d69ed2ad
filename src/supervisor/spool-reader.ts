/** Reads whole lines of a spool from an offset. Knows bytes and lines, no meaning. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import type { SpoolLine } from '../domain/spool.ts';
import { spoolLineSchema } from '../domain/spool.ts';

/** Read at most this much at once, so that one busy attempt does not hold the others up. */
export const SPOOL_CHUNK_BYTES = 1024 * 1024;
const LF = 0x0a;

export type ParsedLine =
  | { readonly kind: 'line'; readonly line: SpoolLine }
  | {
      readonly kind: 'corrupt';
      readonly offset: number;
      readonly bytes: number;
      readonly reason: string;
    };

export interface SpoolChunk {
  readonly lines: readonly ParsedLine[];
  /** Offset behind the last whole line. */
  readonly nextOffset: number;
  /** Bytes behind that which are no whole line yet. */
  readonly tornBytes: number;
  /** Size of the file when it was read; null when there is no file. */
  readonly size: number | null;
}

function parse(bytes: Buffer, offset: number): ParsedLine {
  const corrupt = (reason: string): ParsedLine => ({
    kind: 'corrupt',
    offset,
    bytes: bytes.length,
    reason,
  });
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    return corrupt('not JSON');
  }
  const parsed = spoolLineSchema.safeParse(value);
  if (parsed.success) return { kind: 'line', line: parsed.data };
  const issue = parsed.error.issues[0];
  return corrupt(`${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not a spool line'}`);
}

function splitLines(buffer: Buffer, offset: number): { lines: ParsedLine[]; consumed: number } {
  const lines: ParsedLine[] = [];
  let start = 0;
  for (;;) {
    const end = buffer.indexOf(LF, start);
    if (end === -1) return { lines, consumed: start };
    lines.push(parse(buffer.subarray(start, end), offset + start));
    start = end + 1;
  }
}

function openSpool(file: string): number | null {
  try {
    return openSync(file, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return null;
  }
}

/**
 * Reads whole lines from `offset` on. A line without its LF waits for the rest; one
 * longer than a chunk cannot be the wrapper's and is passed over as corrupt.
 *
 * Synchronous: what was just written is in the page cache, and four trips to the thread
 * pool for a few lines cost more than reading them.
 */
export function readSpool(file: string, offset: number): SpoolChunk {
  const handle = openSpool(file);
  if (handle === null) return { lines: [], nextOffset: offset, tornBytes: 0, size: null };
  try {
    const { size } = fstatSync(handle);
    const length = Math.max(0, Math.min(SPOOL_CHUNK_BYTES, size - offset));
    const buffer = Buffer.allocUnsafe(length);
    const bytesRead = readSync(handle, buffer, 0, length, offset);
    const { lines, consumed } = splitLines(buffer.subarray(0, bytesRead), offset);
    if (consumed === 0 && bytesRead === SPOOL_CHUNK_BYTES) {
      const giant: ParsedLine = {
        kind: 'corrupt',
        offset,
        bytes: bytesRead,
        reason: 'line too long',
      };
      return { lines: [giant], nextOffset: offset + bytesRead, tornBytes: 0, size };
    }
    return { lines, nextOffset: offset + consumed, tornBytes: bytesRead - consumed, size };
  } finally {
    closeSync(handle);
  }
}
