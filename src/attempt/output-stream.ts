/** One output stream of a command: into its log, and in pieces into the spool. */

import type { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import type { Capture } from './capture.ts';
import { DeltaCoalescer } from './delta-coalescer.ts';
import { type Redact, RedactedStream } from './redact.ts';

// As JSON a piece is at most six times its length: below the longest line of the spool.
const PIECE = { flushMs: 250, maxLength: 8 * 1024 };

/** Reads the stream to its end. Returns the flush of what waits. */
export function readOutput(
  stream: Readable,
  capture: Capture,
  redact: Redact,
  emit: (text: string) => void,
): () => void {
  // Invalid bytes become U+FFFD, characters across two chunks stay whole.
  const decoder = new StringDecoder('utf8');
  const clean = new RedactedStream(redact);
  const coalescer = new DeltaCoalescer({ ...PIECE, emit });
  stream.on('data', (chunk: Buffer) => {
    capture.push(chunk);
    coalescer.push(clean.push(decoder.write(chunk)));
  });
  // A pipe that breaks has nothing more to say; the program's end is told elsewhere.
  stream.on('error', () => {});
  return () => {
    coalescer.push(clean.push(decoder.end()) + clean.end());
    coalescer.flush();
  };
}
