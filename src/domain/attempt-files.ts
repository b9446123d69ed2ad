/**
 * The contract between daemon and wrapper: names in the attempt directory,
 * launch.json, the claim file, and the messages on the control socket.
 *
 * Types only, without a schema library: the wrapper pays for every import at
 * each start.
 *
 * A deploy replaces daemon and wrapper code under running attempts, so either may be
 * newer. launch.json of a later version is refused: nothing has run yet. On the control
 * socket each side speaks the lower of both versions, and of any version the daemon
 * hears who greets and that its heart beats: what {@link ControlFromWrapper} says of
 * `hello` and `heartbeat` holds for all versions to come, beside fields of their own.
 */
import type { ApprovalSpec } from './decisions.ts';
import type { SandboxChoice } from './sandbox.ts';
import type { RunnerId, TimeoutPolicy } from './work-unit.ts';

export const LAUNCH_VERSION = 1;
export const CONTROL_VERSION = 1;

/** Names inside `attempts/<work unit id>/<attempt id>/`. */
export const ATTEMPT_FILES = {
  launch: 'launch.json',
  spool: 'events.jsonl',
  /** Room on the disk kept for the last word; gone when the wrapper ends by itself. */
  reserve: 'events.jsonl.reserve',
  claim: 'claim',
  /** Pi's or the command's stderr, bounded. */
  stderr: 'stderr.log',
  /** The command's stdout, bounded; for Pi the raw tail of its protocol. */
  stdout: 'stdout.log',
  /** What a Pi run said and did, for reading; bounded. */
  transcript: 'transcript.txt',
  /** What changed in the work tree during the run; bounded, absent where git knows nothing of it. */
  diff: 'changes.diff',
  /** Directory of git's own things for that diff; gone when the wrapper ends by itself. */
  snapshot: 'snapshot',
} as const;

/** How the last line of a diff begins that is not all there was. */
export const DIFF_CUT = '[… cut: ';

export interface PiRunnerSpec {
  readonly kind: 'pi';
  /** Program and leading arguments that are Pi: `[node, cli.js]`, or a person's own `[pi]`. */
  readonly command: readonly string[];
  /** Absolute path; the file belongs to the work unit and need not exist yet. */
  readonly sessionFile: string;
  readonly prompt: string;
  /** Said instead of the prompt when the session has it already; null where that may not be. */
  readonly continuation: string | null;
  /** `provider/model`, null for the person's default. */
  readonly model: string | null;
}

export interface CommandRunnerSpec {
  readonly kind: 'command';
  readonly argv: readonly string[];
}

/** A provider of Pi's that is reached through the wrapper, which alone has its key. */
export interface KeyProxySpec {
  /** Pi's name of it. */
  readonly provider: string;
  /** The variable, and so the credential, that holds the key. */
  readonly keyVariable: string;
  /** Where the provider really is; http or https, without a query. */
  readonly baseUrl: string;
  /** The header that carries the key. */
  readonly header: string;
  /** The word before the key in it, as `Bearer`; null for none. */
  readonly scheme: string | null;
}

/** Null for none. */
export interface RunCeiling {
  readonly microUsd: number | null;
  readonly tokens: number | null;
}

/** What the runner's commands are kept from; all paths absolute. */
export interface SandboxSpec extends SandboxChoice {
  /** Directories that a nest covers; one that is not there is left out. */
  readonly hidden: readonly string[];
  /** Files that are empty in a nest. */
  readonly veiled: readonly string[];
  /** Directories that cannot be written in a nest; made where they are missing. */
  readonly readOnly: readonly string[];
}

/** launch.json: all a wrapper needs to know. Holds no secret but what a request gives in variables. */
export interface LaunchFile {
  readonly version: typeof LAUNCH_VERSION;
  readonly workspace: string;
  readonly workUnitId: string;
  readonly attemptId: string;
  readonly attemptNumber: number;
  readonly handle: string;
  readonly unit: string;
  readonly nonce: string;
  readonly runnerId: RunnerId;
  readonly runner: PiRunnerSpec | CommandRunnerSpec;
  /** The work tree; the unit itself starts in the attempt directory. */
  readonly cwd: string;
  /** The runner's whole environment, before credentials are added. */
  readonly environment: Readonly<Record<string, string>>;
  /** Variables whose values are files in $CREDENTIALS_DIRECTORY; exported to Pi only. */
  readonly credentialVariables: readonly string[];
  /** Their variables are not among those: the keys stay with the wrapper. */
  readonly keyProxy: readonly KeyProxySpec[];
  readonly timeouts: TimeoutPolicy;
  /** What its work unit may still spend; the wrapper holds it also while no daemon runs. */
  readonly ceiling: RunCeiling;
  /** Absolute path of the control socket the wrapper listens on. */
  readonly controlSocket: string;
  /**
   * Made by the wrapper and given to Pi as TMPDIR, removed by the daemon after the end. Null
   * for commands, and in files of a daemon before this.
   */
  readonly temporaryDirectory: string | null;
  /** Bytes kept of each of stdout, stderr, transcript and diff. */
  readonly captureBytes: number;
  /** File mode mask of the runner's program: the person's own, since what it makes is the person's. */
  readonly umask: number;
  /** Null in files of a daemon before this: everything is allowed then, and nothing asked. */
  readonly approvals: ApprovalSpec | null;
  /** Null in files of a daemon before this: there is no sandbox then. */
  readonly sandbox: SandboxSpec | null;
}

/**
 * The claim file, made by link(2) from a finished temporary file: whoever links
 * first has won for good. A wrapper that loses exits without running anything;
 * a daemon that wins knows that no late start can run.
 */
export type ClaimFile =
  | {
      readonly v: 1;
      readonly by: 'wrapper';
      readonly nonce: string;
      readonly invocationId: string | null;
      readonly pid: number;
    }
  | {
      readonly v: 1;
      readonly by: 'revoked';
      readonly nonce: string;
      readonly runtimeInstanceId: string;
    };

/** What is going on right now; lives on the control socket only, never in the store's events. */
export interface LiveState {
  readonly currentTool: string | null;
  readonly costUsd: number | null;
  readonly totalTokens: number | null;
}

/** Wrapper to daemon, one JSON object per line. */
export type ControlFromWrapper =
  | {
      readonly v: number;
      readonly type: 'hello';
      readonly attemptId: string;
      readonly nonce: string;
      readonly invocationId: string | null;
      readonly pid: number;
      readonly spoolBytes: number;
    }
  | {
      readonly v: number;
      readonly type: 'heartbeat';
      readonly ts: string;
      readonly spoolBytes: number;
      readonly live: LiveState;
    }
  | { readonly v: number; readonly type: 'done'; readonly id: string }
  | {
      readonly v: number;
      readonly type: 'error';
      readonly id: string | null;
      readonly message: string;
    };

/** Daemon to wrapper. `abort` ends the runner within `graceMs`; decisions about approvals never come this way. */
export type ControlToWrapper =
  | {
      readonly v: number;
      readonly type: 'abort';
      readonly id: string;
      readonly reason: 'cancel' | 'interrupt' | 'suspend' | 'fail';
      readonly graceMs: number;
    }
  | { readonly v: number; readonly type: 'ping'; readonly id: string }
  /** A hint that a decision lies in the decisions directory; what it says is in the signed file only. */
  | { readonly v: number; readonly type: 'look'; readonly id: string };

/** Exit statuses of the wrapper itself, below 200 (systemd's own) and above what programs use. */
export const WRAPPER_EXIT = {
  /** The runner failed; the last word says how. */
  runnerFailed: 1,
  /** launch.json is missing, damaged or of another version. */
  badLaunchFile: 190,
  /** The claim was revoked (or belongs to somebody else) before this start. */
  claimLost: 191,
  /** Claim or spool could not be written. */
  noSpool: 192,
  /** Not even the last word could be written. */
  spoolLost: 193,
  /** Claim or spool could not be written because the disk is full. */
  diskFull: 194,
} as const;
