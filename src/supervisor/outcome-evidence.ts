/** What an ended run left behind, as far as its contract asks: gathered aside, within a deadline. */
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import type { OutcomeContract } from '../domain/outcome.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { OutcomeRow } from '../store/outcomes.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { capturedTail } from './artifacts.ts';
import type { Context } from './context.ts';
import type { Left, LookRequest } from './outcome-look.ts';

/** Longest result, bytes of its line. */
const RESULT_BYTES = 64 * 1024;
/** A look that takes longer finds nothing. */
const LOOK_MS = 30_000;
/** More memory than names and a schema need. */
const LOOK_MB = 256;
/** This file's own ending: the sources run as they are, too. */
const WORKER = path.join(
  import.meta.dirname,
  `outcome-worker${path.extname(import.meta.filename)}`,
);

/**
 * When the first attempt of this run was claimed: a little before anything of it ran. When it
 * was seen to run can be later than its first file, where the daemon was away or slow.
 */
function startOf({ store }: Context, row: OutcomeRow): number {
  const before = store.outcomes.endBefore(row);
  const first = store.attempts
    .listByWorkUnit(row.workUnitId)
    .find(({ attemptNumber }) => attemptNumber > before);
  return Date.parse(first?.createdAt ?? row.createdAt);
}

function saidBy(
  { settings }: Context,
  attempt: AttemptRow,
): { readonly text: string; readonly whole: boolean } {
  return attempt.runnerId === 'command'
    ? capturedTail(settings, attempt, 'stdout', RESULT_BYTES)
    : { text: attempt.lastWord?.text ?? '', whole: true };
}

/** What nobody could find out is not there. */
const unseen = (request: LookRequest, why: string): Left => ({
  missing: request.outputs.length === 0 ? [] : [`what it left could not be looked at: ${why}`],
  result: request.result === null ? null : `the result could not be looked at: ${why}`,
  json: null,
});

/**
 * Looks in a thread of its own.
 * @returns null when the thread could not be had, or was told to stop: then nothing was looked at.
 */
export function lookAside(
  request: LookRequest,
  { ms = LOOK_MS, signal }: { ms?: number; signal?: AbortSignal } = {},
): Promise<Left | null> {
  const worker = new Worker(WORKER, {
    workerData: request,
    resourceLimits: { maxOldGenerationSizeMb: LOOK_MB },
    // Neither flags nor variables of the daemon's are its business.
    execArgv: [],
    env: {},
  });
  return new Promise((resolve) => {
    let isReady = false;
    let timer: NodeJS.Timeout | undefined;
    const aborted = (): void => end(null);
    const end = (left: Left | null): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', aborted);
      resolve(left);
      void worker.terminate();
    };
    timer = setTimeout(() => end(unseen(request, `it took more than ${ms / 1000} s`)), ms);
    signal?.addEventListener('abort', aborted);
    worker.on('message', (said: 'ready' | Left) => {
      if (said === 'ready') isReady = true;
      else end(said);
    });
    worker.once('error', (error) => end(isReady ? unseen(request, error.message) : null));
    worker.once('exit', () => end(isReady ? unseen(request, 'the look was cut off') : null));
  });
}

/**
 * Looks at what the run of this row left. Reads only; may be repeated.
 * @returns null when it could not be tried now.
 */
export async function gatherLeft(
  context: Context,
  row: OutcomeRow,
  { cwd }: Pick<WorkUnitRow, 'cwd'>,
  { outputs = [], result }: OutcomeContract,
  signal?: AbortSignal,
): Promise<Left | null> {
  const since = outputs.length === 0 ? 0 : startOf(context, row);
  const attempt = row.attemptId === null ? null : context.store.attempts.get(row.attemptId);
  const nothingRan = result !== undefined && attempt === null;
  const asked =
    result && attempt
      ? {
          ...saidBy(context, attempt),
          runnerId: attempt.runnerId,
          schema: result.schema,
        }
      : null;
  if (outputs.length === 0 && asked === null) {
    return {
      missing: [],
      result: nothingRan ? 'the result is missing: nothing ran' : null,
      json: null,
    };
  }
  return lookAside({ cwd, outputs, since, result: asked }, signal ? { signal } : {});
}
