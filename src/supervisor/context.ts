/** What every part of the supervisor works with. Joined once, in compose.ts. */
import type { Logger } from 'pino';
import type { Entropy } from '../domain/ids.ts';
import type { Executor } from '../executor/port.ts';
import type { Store } from '../store/store.ts';
import type { Faults } from './faults.ts';
import type { Hub } from './hub.ts';
import type { Policies } from './policies.ts';
import type { SandboxSettings } from './sandbox-settings.ts';
import type { Writer } from './writer.ts';

export interface Settings {
  readonly attemptsDirectory: string;
  readonly sessionsDirectory: string;
  readonly exitsDirectory: string;
  /** `$XDG_RUNTIME_DIR/outlive/<workspace>`: control sockets and credentials. */
  readonly runtimeDirectory: string;
  /** The node binary that runs the wrapper. */
  readonly node: string;
  /** The wrapper's entry, absolute. */
  readonly wrapper: string;
  /** Pi's program and leading arguments. */
  readonly piCommand: readonly string[];
  readonly runnerEnvironment: Readonly<Record<string, string>>;
  /** Variable name to secret value; each becomes a credential of a Pi attempt. */
  readonly keys: Readonly<Record<string, string>>;
  readonly captureBytes: number;
  readonly umask: number;
  /** Slots by type and key; a key that is not named has no limit. */
  readonly limits: Readonly<
    Record<'provider' | 'runner' | 'media_provider', Readonly<Record<string, number>>>
  >;
  /** Set aside for longer than this, a queued unit's leases are kept free for it, milliseconds. */
  readonly starvingMs: number;
  readonly policies: Policies;
  readonly home: string;
  /** Absent: attempts have none. */
  readonly sandbox?: SandboxSettings;
}

export interface Context {
  readonly workspace: string;
  readonly runtimeInstanceId: string;
  readonly store: Store;
  readonly writer: Writer;
  readonly executor: Executor;
  readonly entropy: Entropy;
  readonly hub: Hub;
  readonly log: Logger;
  readonly settings: Settings;
  readonly fault: Faults;
}
