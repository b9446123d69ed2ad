/**
 * The executor port: how the supervisor starts, watches and ends attempts.
 *
 * Two implementations: transient units of `systemd --user`, and (where there is
 * no user manager) plain process groups. The supervisor knows only this file.
 */
import type { ManagerInstance } from '../domain/evidence.ts';

export interface StartRequest {
  readonly unit: string;
  readonly nonce: string;
  readonly attemptId: string;
  readonly description: string;
  /** Absolute program and arguments; none may hold `$ " \ %` (systemd would expand them). */
  readonly argv: readonly string[];
  /** Absolute; becomes the working directory of the unit's main process. */
  readonly attemptDirectory: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Each becomes `$CREDENTIALS_DIRECTORY/<name>` inside the unit; `path` is absolute. */
  readonly credentials: readonly { readonly name: string; readonly path: string }[];
  readonly hardTimeoutMs: number;
  readonly cancelGraceMs: number;
  /** What the whole unit is kept from; absent for nothing. The direct executor has no such thing. */
  readonly sandbox?: UnitSandbox;
}

/** Absolute paths; one that begins with `-` need not exist. */
export interface UnitSandbox {
  readonly inaccessible: readonly string[];
  readonly readOnly: readonly string[];
}

export type UnitState =
  | 'activating'
  | 'active'
  | 'reloading'
  | 'deactivating'
  | 'inactive'
  | 'failed';

/** A fresh read of a loaded unit. */
export interface UnitFacts {
  readonly unit: string;
  /** OUTLIVE_NONCE of the unit's environment, null when it has none: then it is not ours. */
  readonly nonce: string | null;
  readonly state: UnitState;
  /** A job of the unit is queued or under way: what is dead now may start yet. */
  readonly jobPending: boolean;
  /** A main process was once forked; false for a start that came to nothing or is still to come. */
  readonly everRan: boolean;
  readonly frozen: boolean;
  /** Null while there was none yet. */
  readonly invocationId: string | null;
  /** Path below the cgroup root; null once the unit is dead. */
  readonly controlGroup: string | null;
  readonly mainPid: number | null;
  /** systemd's Result. */
  readonly result: string;
  readonly exit: {
    readonly how: 'exited' | 'killed' | 'dumped' | 'unknown';
    readonly status: number | null;
    readonly signal: string | null;
    /** Monotonic milliseconds between start and exit of the main process. */
    readonly elapsedMs: number | null;
  };
  /** True when the exit-record drop-in applies to this unit. */
  readonly leavesExitRecord: boolean;
}

/** What a list tells of a unit: whose it is, and whether it is dead. */
export type ListedUnit = Pick<UnitFacts, 'unit' | 'nonce' | 'state' | 'jobPending'>;

/** The machine as it is now: what an attempt's stored identity is compared with. */
export interface HostFacts {
  readonly bootId: string;
  readonly manager: ManagerInstance | null;
  /** `running`, `degraded`, `stopping`, …; null when it cannot be asked. */
  readonly managerState: string | null;
}

/**
 * The reply of a start is neither proof nor disproof, so the result is what a
 * fresh read showed afterwards.
 */
export type StartResult =
  /**
   * Our name and our nonce are loaded; it may even have ended already, or its job may
   * still be queued. `problem` is what systemd said against the start, if it did.
   */
  | { readonly kind: 'present'; readonly facts: UnitFacts; readonly problem: string | null }
  /** The name is taken by something that does not carry our nonce. */
  | { readonly kind: 'foreign'; readonly facts: UnitFacts }
  /** Nothing of that name is loaded. It may have run and vanished, or may still come late. */
  | { readonly kind: 'absent'; readonly reason: string }
  /** The manager could not even be asked what is loaded. */
  | { readonly kind: 'unknown'; readonly reason: string };

export interface Executor {
  readonly kind: 'systemd' | 'direct';
  /** Resolves when the executor can be used; rejects with `no_user_manager`. */
  connect(): Promise<void>;
  host(): Promise<HostFacts>;
  /**
   * Rejects only before anything was sent: `path_unsupported`, `disk_full`,
   * `state_dir_unwritable`. After that every outcome is a result.
   */
  start(request: StartRequest): Promise<StartResult>;
  /**
   * What {@link start} would ask for, readable; starts nothing and asks nobody.
   * @throws OutliveError `path_unsupported`.
   */
  describeStart(
    request: StartRequest,
  ): readonly { readonly name: string; readonly value: string }[];
  /** Null when no unit of that name is loaded. Rejects with `bus_unavailable` when nobody can tell. */
  read(unit: string): Promise<UnitFacts | null>;
  /** All loaded units of the workspace, ours by nonce or not. */
  list(): Promise<readonly ListedUnit[]>;
  /** Keeps an ended unit readable until {@link release}; repeatable. False when it is gone. */
  hold(unit: string): Promise<boolean>;
  /** Lets go of an ended unit and clears its failure; "not there" is fine. */
  release(unit: string): Promise<void>;
  /** Asks for the unit's stop; returns once the request is accepted, not once it is dead. */
  stop(unit: string): Promise<void>;
  /** Sends a signal to every process of the unit. */
  kill(unit: string, signal: number): Promise<void>;
  /**
   * True once no process is left in the group (or the group is gone); false at the deadline.
   * A group can be empty for a moment before ExecStopPost runs in it: a dead unit must be
   * seen as well.
   */
  waitEmpty(controlGroup: string, deadlineMs: number): Promise<boolean>;
  /**
   * Hints that something may have changed: a unit's name, or null for "anything,
   * read everything again" (a lost and regained bus). Returns the unsubscribe.
   */
  onHint(listener: (unit: string | null) => void): () => void;
  /** False while the bus is away; attempts are unaffected. */
  readonly healthy: boolean;
  close(): Promise<void>;
}
