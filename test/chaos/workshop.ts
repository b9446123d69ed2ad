/** The place of one round: a workspace of its own, found again by its name after a power cut. */
import { existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Client, createClient } from '../../src/client/client.ts';
import { type Config, loadConfig } from '../../src/config.ts';
import { dropInDirectoryName, sliceName } from '../../src/domain/names.ts';
import { systemctl } from '../support/rig.ts';
import { writePiLab } from '../support/scripted-model/lab.ts';

/** A private host has a small file system of the user's own. */
export const SMALL_DISK = '/run/outlive-host/small';
/** How many may run at once in a round: low, so that something waits. */
export const LIMITS = { runner: { command: 3, pi: 2 } } as const;

/** Which directories of the state lie on the small disk. */
export type OnSmallDisk = 'state' | 'store' | 'attempts' | 'exits' | null;

export interface Workshop {
  readonly workspace: string;
  readonly base: string;
  readonly tree: string;
  readonly journal: string;
  readonly logs: string;
  readonly config: Config;
  readonly env: Record<string, string>;
  readonly client: Client;
}

function environment(base: string, workspace: string, stateHome: string): Record<string, string> {
  const runtime = process.env['XDG_RUNTIME_DIR'];
  if (!runtime) throw new Error('XDG_RUNTIME_DIR is not set: run this through ops/scripts/host');
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: os.homedir(),
    LANG: 'C.UTF-8',
    XDG_RUNTIME_DIR: runtime,
    DBUS_SESSION_BUS_ADDRESS: `unix:path=${runtime}/bus`,
    XDG_STATE_HOME: stateHome,
    XDG_CONFIG_HOME: path.join(base, 'config'),
    XDG_CACHE_HOME: path.join(os.homedir(), 'cache'), // of all rounds: Pi's compile cache is in it
    PI_CODING_AGENT_DIR: path.join(base, 'agent'),
    PI_OFFLINE: '1',
    OUTLIVE_WORKSPACE: workspace,
    OUTLIVE_EXECUTOR: 'systemd', // As its unit: where the bus is away it fails and is started again.
    OUTLIVE_PORT: 'none',
  };
}

const baseOf = (workspace: string): string => path.join(os.homedir(), `chaos-${workspace}`);
const smallOf = (workspace: string): string => path.join(SMALL_DISK, workspace);

/** Links one directory of the state to the small disk, before the daemon makes it. */
function moveToSmallDisk(config: Config, workspace: string, what: 'store' | 'attempts' | 'exits') {
  const target = path.join(smallOf(workspace), what);
  mkdirSync(target, { recursive: true, mode: 0o700 });
  mkdirSync(config.directories.state, { recursive: true, mode: 0o700 });
  symlinkSync(target, config.directories[what]);
}

/** Makes the place, or finds it again. */
export async function openWorkshop(
  workspace: string,
  model: { baseUrl: string; apiKey: string },
  small: OnSmallDisk,
): Promise<Workshop> {
  const base = baseOf(workspace);
  const stateHome = small === 'state' ? smallOf(workspace) : path.join(base, 'state');
  const env = environment(base, workspace, stateHome);
  const fresh = !existsSync(base);
  const tree = path.join(base, 'tree');
  for (const directory of [tree, path.join(base, 'locks'), path.join(base, 'logs'), stateHome]) {
    mkdirSync(directory, { recursive: true });
  }
  const configFile = path.join(base, 'config/outlive/config.json');
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify({ limits: LIMITS }));
  await writePiLab(path.join(base, 'agent'), { ...model, retries: 'fast' });
  const config = loadConfig(env);
  if (fresh && small !== null && small !== 'state') moveToSmallDisk(config, workspace, small);
  return {
    workspace,
    base,
    tree,
    journal: path.join(base, 'journal'),
    logs: path.join(base, 'logs'),
    config,
    env,
    client: createClient({ socketPath: config.directories.apiSocket }),
  };
}

/** Removes all of it, and every unit of the workspace; `keep` leaves what tells of the round. */
export async function closeWorkshop(
  { workspace, base, config }: Workshop,
  { keep }: { keep: boolean },
): Promise<void> {
  await systemctl('stop', sliceName(workspace)).catch(() => undefined);
  await systemctl('reset-failed', `outlive-${workspace}-*`).catch(() => undefined);
  const { userRuntime, runtime } = config.directories;
  const dropIn = path.join(userRuntime, 'systemd/user', dropInDirectoryName(workspace));
  for (const place of [dropIn, runtime, smallOf(workspace), ...(keep ? [] : [base])]) {
    rmSync(place, { recursive: true, force: true, maxRetries: 5 });
  }
}
