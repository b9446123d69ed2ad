/** What a sandbox keeps commands from, as places of this machine and this workspace. */
import os from 'node:os';
import path from 'node:path';
import type { Config, Directories } from '../config.ts';
import type { UnitSandbox } from '../executor/port.ts';
import { CHECKOUT } from '../layout.ts';

/** All absolute; what is not there is passed over. */
export interface NestPlaces {
  readonly hidden: readonly string[];
  readonly veiled: readonly string[];
  readonly readOnly: readonly string[];
}

export interface SandboxPlaces {
  readonly unit: UnitSandbox;
  readonly nest: NestPlaces;
}

/** Whoever reaches these is root, or can have somebody else act. */
const FOREIGN_SOCKETS = [
  '/run/docker.sock',
  '/run/containerd/containerd.sock',
  '/run/podman/podman.sock',
  '/var/lib/incus/unix.socket',
  '/var/snap/lxd/common/lxd/unix.socket',
];

/** The unit's: all in it, the wrapper and Pi too, which still need attempts and sessions. */
function unitPlaces({ userRuntime, apiSocket, ...state }: Directories): UnitSandbox {
  return {
    inaccessible: [
      state.store,
      state.exits,
      state.token,
      // Directories, not sockets: a file that is made anew would be seen again.
      `-${path.dirname(apiSocket)}`,
      `-${path.join(userRuntime, 'systemd')}`,
      `-${path.join(userRuntime, 'bus')}`,
      '-/run/dbus',
      '-/run/systemd/private',
      // Output goes on: its socket was connected before the place was hidden.
      '-/run/systemd/journal',
    ],
    readOnly: [`-${state.decisions}`],
  };
}

/** All workspaces of this user, where the directory is one of ours. */
function withSiblings(directory: string): string {
  const parent = path.dirname(directory);
  return path.basename(parent) === 'outlive' ? parent : directory;
}

/** Whoever reads one can speak in the name of somebody else. */
function secretFiles(linear: Config['linear']): string[] {
  const { clientSecretFile = null, tokensFile = null } = linear?.app ?? {};
  const files = [linear?.webhookSecretFile ?? null, clientSecretFile, tokensFile];
  return files.filter((file) => file !== null).filter((file) => path.isAbsolute(file));
}

function nestPlaces(config: Config): NestPlaces {
  const { directories, home, file, runnerEnvironment, linear } = config;
  const { uid, username } = os.userInfo();
  const agent = runnerEnvironment['PI_CODING_AGENT_DIR'] ?? path.join(home, '.pi', 'agent');
  const configHomes = new Set([
    path.join(home, '.config'),
    runnerEnvironment['XDG_CONFIG_HOME'] ?? path.join(home, '.config'),
  ]);
  const shown = new Set(file.sandbox.show);
  const foreign = (places: readonly string[]): string[] =>
    places.filter((each) => !shown.has(each));
  return {
    hidden: [
      withSiblings(directories.state),
      withSiblings(directories.runtime),
      directories.userRuntime,
      `/run/user/${uid}`,
      ...foreign([
        '/run/dbus',
        '/run/systemd/journal',
        // What types into a person's terminal acts outside of any nest.
        `/tmp/tmux-${uid}`,
        `/run/screen/S-${username}`,
        path.join(home, '.screen'),
      ]),
      ...file.sandbox.hide,
    ],
    veiled: [
      ...secretFiles(linear),
      '/run/systemd/private',
      path.join(agent, 'auth.json'),
      path.join(agent, 'models.json'),
      ...foreign(FOREIGN_SOCKETS),
    ],
    readOnly: [
      // Each is run, or believed, outside of any nest some time later.
      ...[...configHomes].map((each) => path.join(each, 'systemd')),
      path.join(home, '.local', 'share', 'systemd'),
      path.dirname(directories.configFile),
      directories.cache,
      agent,
      CHECKOUT,
    ],
  };
}

/** The places of a workspace. */
export function sandboxPlaces(config: Config): SandboxPlaces {
  const { inaccessible, readOnly } = unitPlaces(config.directories);
  const secrets = secretFiles(config.linear).map((file) => `-${file}`);
  return {
    unit: { inaccessible: [...inaccessible, ...secrets], readOnly },
    nest: nestPlaces(config),
  };
}
