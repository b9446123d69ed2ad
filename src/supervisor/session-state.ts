/** Reads a Pi session file from the disk, bounded in memory, and judges it. */
import { open, stat } from 'node:fs/promises';
import type { SessionState } from '../domain/session-file.ts';
import { SessionReading } from '../domain/session-file.ts';

const CHUNK_BYTES = 256 * 1024;
const LF = 0x0a;

/** Feeds every line to `take`; split on LF only, since other line ends occur inside strings. */
/** Every line of a session file, in order. @throws the file system's error. */
export async function eachSessionLine(file: string, take: (line: string) => void): Promise<void> {
  const handle = await open(file, 'r');
  try {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    let rest: Buffer[] = [];
    for (;;) {
      const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES);
      if (bytesRead === 0) break;
      let from = 0;
      for (let at = chunk.indexOf(LF); at >= 0 && at < bytesRead; at = chunk.indexOf(LF, from)) {
        rest.push(chunk.subarray(from, at));
        take(Buffer.concat(rest).toString('utf8'));
        rest = [];
        from = at + 1;
      }
      // The chunk is used again: what is left over has to be a copy.
      rest.push(Buffer.from(chunk.subarray(from, bytesRead)));
    }
    const tail = Buffer.concat(rest);
    if (tail.length > 0) take(tail.toString('utf8'));
  } finally {
    await handle.close();
  }
}

/**
 * The state of a work unit's conversation. A file that is not there is empty; one that
 * cannot be read is corrupt, because nothing may go on from a guess.
 */
export async function sessionState(file: string): Promise<SessionState> {
  const reading = new SessionReading();
  try {
    await eachSessionLine(file, (line) => reading.take(line));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { kind: 'empty' };
    return { kind: 'corrupt', line: 0, reason: (error as Error).message };
  }
  return reading.state();
}

/** True when Pi can be started there: it works in the directory its session names. */
export async function isDirectory(place: string): Promise<boolean> {
  try {
    return (await stat(place)).isDirectory();
  } catch {
    return false;
  }
}
