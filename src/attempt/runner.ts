/**
 * The contract of a runner: what the wrapper starts, whatever it is.
 *
 * A runner emits `started` once its program is up, then its events; ends early
 * when `stop.signal` aborts, within the grace of `stop.request`; frees its
 * processes and listeners before its promise settles; returns a result and
 * throws only when it is broken itself. It knows nothing of the daemon's state.
 */
import type { LaunchFile, LiveState } from '../domain/attempt-files.ts';
import type { FailureCode } from '../domain/outcome-codes.ts';
import type { LastWord } from '../domain/spool.ts';
import type { Emit } from './event-data.ts';
import type { ProtectedPaths } from './nest-paths.ts';
import type { Redact } from './redact.ts';
import type { StopSwitch } from './stop.ts';

export interface RunnerContext {
  readonly launch: LaunchFile;
  /** Where stdout.log and stderr.log go. */
  readonly attemptDirectory: string;
  /** The whole environment of the runner's program. */
  readonly environment: Readonly<Record<string, string>>;
  readonly emit: Emit;
  /** Updates what heartbeats tell. */
  readonly live: (change: Partial<LiveState>) => void;
  readonly stop: StopSwitch;
  readonly redact: Redact;
  /** Says whom to tell that a decision may lie in the decisions directory. */
  readonly onLook: (look: () => void) => void;
  /** The nest that every command of the model enters; null where there is none. */
  readonly nest: RunnerNest | null;
  /** Providers that Pi reaches through the wrapper. */
  readonly providers: readonly ProxiedProvider[];
  /** Says a sentence to the journal. */
  readonly warn: (sentence: string) => void;
}

/** A provider as Pi is told of it: where the wrapper stands in for it, and the token that opens the way. */
export interface ProxiedProvider {
  readonly name: string;
  readonly baseUrl: string;
  readonly token: string;
}

/** A room of namespaces for what the model runs. */
export interface RunnerNest {
  /**
   * Put before an argv, it runs that argv inside, in the same directory and environment,
   * with PWD and without the variables that hold keys.
   */
  readonly enter: readonly string[];
  /** What tools that act outside of it may not touch either; ask judgePath of nest-paths.ts. */
  readonly paths: ProtectedPaths;
}

/** How the runner's program ended and what it said; the wrapper adds why. */
export interface RunnerResult extends Omit<LastWord, 'leftovers' | 'verdict' | 'code'> {
  readonly verdict: 'ok' | 'error';
  readonly code: FailureCode | null;
}

export type Runner = (context: RunnerContext) => Promise<RunnerResult>;

/** What a result says beside its verdict. */
export type ResultFacts = Partial<Omit<RunnerResult, 'verdict' | 'code' | 'message'>>;

const NOTHING_KNOWN = {
  text: '',
  exitCode: null,
  signal: null,
  usage: null,
  costUsd: null,
  retryAt: null,
};

export function success(facts: ResultFacts): RunnerResult {
  return { ...NOTHING_KNOWN, ...facts, verdict: 'ok', code: null, message: null };
}

export function failure(code: FailureCode, message: string, facts: ResultFacts = {}): RunnerResult {
  return { ...NOTHING_KNOWN, ...facts, verdict: 'error', code, message };
}
