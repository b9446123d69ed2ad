/** What the daemon commands ask of systemd; daemon.ts brings the real thing. */
import { type Context, workspaceFlag } from './context.ts';

export interface UnitState {
  readonly unit: string;
  readonly active: string;
  readonly result: string;
}

export interface UnitSpec {
  readonly workspace: string;
  readonly argv: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly credentials: readonly { readonly name: string; readonly path: string }[];
  /** Of the caller: what runners write is to have the modes it has elsewhere. */
  readonly umask: number;
  readonly stopMs: number;
}

/** The daemon's unit in the user manager: the installed one where there is one, else a transient one. */
export interface UnitHost {
  isInstalled(workspace: string): Promise<boolean>;
  /** True when systemd would start the daemon for whoever connects. */
  isListening(workspace: string): Promise<boolean>;
  state(workspace: string): Promise<UnitState>;
  start(spec: UnitSpec): Promise<UnitState>;
  /** Waits `stopMs` milliseconds and somewhat more. */
  stop(workspace: string, stopMs: number): Promise<UnitState>;
  /** Of an installed unit; its sockets stay open. */
  restart(workspace: string, stopMs: number): Promise<UnitState>;
  /** Runs the probe of a sandbox, hiding `hidden`. @returns what went wrong with the run of it. */
  runProbe(argv: readonly string[], hidden: string): Promise<string | null>;
  close(): void;
}

export interface DaemonContext extends Context {
  /** @throws OutliveError `no_user_manager`. */
  readonly connectHost: () => Promise<UnitHost>;
}

/** Works with the user manager and lets go of it afterwards. */
export async function withHost<Result>(
  { connectHost }: DaemonContext,
  work: (host: UnitHost) => Promise<Result>,
): Promise<Result> {
  const host = await connectHost();
  try {
    return await work(host);
  } finally {
    host.close();
  }
}

/** `outlive daemon <verb>` as a person has to type it for this workspace. */
export function daemonCommand({ config }: Context, verb: string): string {
  return `outlive daemon ${verb}${workspaceFlag(config.workspace)}`;
}
