/** Reads whole lines of a spool from an offset. Knows bytes and lines, no meaning. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { type ReadLine, readLine } from '../domain/spool.ts';

/** Read at most this much at once, so that one busy attempt does not hold the others up. */
export const SPOOL_CHUNK_BYTES = 1024 * 1024;
const LF = 0x0a;

export type ParsedLine =
  | Extract<ReadLine, { kind: 'line' | 'unknown_type' }>
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
  /** The major version of the next line, when that is a later one than we read; it stays unread. */
  readonly newer: number | null;
}

function parse(bytes: Buffer, offset: number): ParsedLine | { kind: 'newer'; version: number } {
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
  const read = readLine(value);
  return read.kind === 'corrupt' ? corrupt(read.reason) : read;
}

interface Lines {
  readonly lines: ParsedLine[];
  readonly consumed: number;
  readonly newer: number | null;
}

function splitLines(buffer: Buffer, offset: number): Lines {
  const lines: ParsedLine[] = [];
  let start = 0;
  for (;;) {
    const end = buffer.indexOf(LF, start);
    if (end === -1) return { lines, consumed: start, newer: null };
    const parsed = parse(buffer.subarray(start, end), offset + start);
    if (parsed.kind === 'newer') return { lines, consumed: start, newer: parsed.version };
    lines.push(parsed);
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
 * longer than a chunk cannot be the wrapper's and is passed over as corrupt. Stops before a
 * line of a later major version: whoever understands it is to find it unread.
 *
 * Synchronous: what was just written is in the page cache, and four trips to the thread
 * pool for a few lines cost more than reading them.
 */
export function readSpool(file: string, offset: number): SpoolChunk {
  const handle = openSpool(file);
  if (handle === null) {
    return { lines: [], nextOffset: offset, tornBytes: 0, size: null, newer: null };
  }
  try {
    const { size } = fstatSync(handle);
    const length = Math.max(0, Math.min(SPOOL_CHUNK_BYTES, size - offset));
    const buffer = Buffer.allocUnsafe(length);
    const bytesRead = readSync(handle, buffer, 0, length, offset);
    const { lines, consumed, newer } = splitLines(buffer.subarray(0, bytesRead), offset);
    if (newer !== null) return { lines, nextOffset: offset + consumed, tornBytes: 0, size, newer };
    if (consumed === 0 && bytesRead === SPOOL_CHUNK_BYTES) {
      const giant: ParsedLine = {
        kind: 'corrupt',
        offset,
        bytes: bytesRead,
        reason: 'line too long',
      };
      return { lines: [giant], nextOffset: offset + bytesRead, tornBytes: 0, size, newer };
    }
    const tornBytes = bytesRead - consumed;
    return { lines, nextOffset: offset + consumed, tornBytes, size, newer };
  } finally {
    closeSync(handle);
  }
}
