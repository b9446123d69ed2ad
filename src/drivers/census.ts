/** What an ended census says. */
import { badLinesText, parseCensus, type Subject } from '../domain/driver-census.ts';
import type { DriverRow } from '../store/drivers.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { capturedTail } from '../supervisor/artifacts.ts';
import type { Context } from '../supervisor/context.ts';

export type CensusEnd =
  | { readonly ok: true; readonly subjects: readonly Subject[] }
  | { readonly ok: false; readonly message: string };

/** Of stderr, in the message of a failure. */
const TAIL_BYTES = 1_500;

const failed = (message: string): CensusEnd => ({ ok: false, message });

/** How it failed, with the end of what it said of that. */
function howItEnded(
  { store, settings }: Pick<Context, 'store' | 'settings'>,
  census: WorkUnitRow,
): string {
  const attempt = store.attempts.listByWorkUnit(census.id).at(-1);
  const tail = attempt ? capturedTail(settings, attempt, 'stderr', TAIL_BYTES).text.trim() : '';
  const code = attempt?.lastWord?.exitCode;
  const status =
    census.errorCode === 'exit_code' && code != null ? `status ${code}` : census.errorCode;
  const how = `The census ${census.handle} ${census.status === 'cancelled' ? 'was cancelled' : 'failed'} (${status})`;
  return tail === '' ? `${how}.` : `${how}: ${tail}`;
}

/** The subjects that a census found; reads files, writes nothing. */
export function readCensus(
  context: Pick<Context, 'store' | 'settings'>,
  { spec }: Pick<DriverRow, 'spec'>,
  census: WorkUnitRow,
): CensusEnd {
  if (census.status !== 'succeeded') return failed(howItEnded(context, census));
  const { store, settings } = context;
  const attempt = store.attempts.listByWorkUnit(census.id).at(-1);
  const stdout = store.artifacts
    .listByWorkUnit(census.id)
    .find(({ attemptId, kind }) => attemptId === attempt?.id && kind === 'stdout');
  const parse = (text: string): CensusEnd => {
    const { handleFrom, cwd } = spec;
    const parsed = parseCensus(text, { handleFrom, hasCwd: cwd !== undefined });
    return parsed.ok ? parsed : failed(badLinesText(parsed.bad));
  };
  const unreadable = failed(
    `What the census ${census.handle} printed cannot be read as it was stored.`,
  );
  if (!attempt || !stdout) {
    // None is listed where nothing was printed, and where it could not be read at the end.
    const isEmpty = attempt && capturedTail(settings, attempt, 'stdout', 1).text === '';
    return isEmpty ? parse('') : unreadable;
  }
  if (stdout.truncated) {
    return failed(
      `The census printed more than the ${settings.captureBytes} bytes that are kept, so nothing was started. Let it name fewer subjects, or raise captureBytes in config.json.`,
    );
  }
  const { text } = capturedTail(settings, attempt, 'stdout', stdout.bytes);
  // Half a census would be taken for a whole one.
  if (Buffer.byteLength(text) !== stdout.bytes) return unreadable;
  return parse(text);
}
