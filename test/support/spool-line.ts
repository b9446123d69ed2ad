import { readLine, type SpoolLine } from '../../src/domain/spool.ts';

/** A line as a wrapper of this build writes it: of its version, of a known type, with no field too many. */
export function strictLine(text: string): SpoolLine {
  const read = readLine(JSON.parse(text));
  if (read.kind !== 'line') throw new Error(`${JSON.stringify(read)}: ${text}`);
  if ('lineFields' in read.line.data) throw new Error(`a field too many: ${text}`);
  return read.line;
}
