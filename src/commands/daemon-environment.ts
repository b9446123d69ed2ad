/** What of the caller's environment the daemon's unit gets; unit properties are readable by anyone on the bus. */
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Config, Environment } from '../config.ts';
import { OutliveError } from '../domain/errors.ts';

// Where outlive and Pi look for their own things; all else a runner needs is named in config.ts.
const PREFIXES = /^(?:XDG_|OUTLIVE_|PI_)/;

// Identity of an attempt: a daemon that is started from inside one is not that attempt.
const NEVER: ReadonlySet<string> = new Set(['OUTLIVE_NONCE', 'OUTLIVE_MARK']);

// systemd refuses the whole unit for one variable with a control character in it.
const UNFIT = /[\p{Cc}--[\t\n]]/v;

/** Variables for the unit, by name. Key variables are never among them. */
export function daemonEnvironment(
  { runnerEnvironment, file }: Pick<Config, 'runnerEnvironment' | 'file'>,
  env: Environment,
): Record<string, string> {
  const prefixed = Object.entries(env).filter(([name]) => PREFIXES.test(name));
  const chosen = [...Object.entries(runnerEnvironment), ...prefixed].filter(
    (entry): entry is [string, string] => {
      const [name, value] = entry;
      const isFit = value !== undefined && !UNFIT.test(value);
      return isFit && !NEVER.has(name) && !file.keyVariables.includes(name);
    },
  );
  return Object.fromEntries(chosen);
}

export interface CredentialFiles {
  readonly credentials: readonly { readonly name: string; readonly path: string }[];
  remove(): Promise<void>;
}

/** Writes each key to a file only this user can read, for as long as the start takes. */
export async function writeCredentials(config: {
  readonly keys: Config['keys'];
  readonly directories: Pick<Config['directories'], 'runtime'>;
}): Promise<CredentialFiles> {
  const keys = Object.entries(config.keys);
  if (keys.length === 0) return { credentials: [], remove: async () => {} };
  const directory = path.join(config.directories.runtime, `daemon-start-${randomUUID()}`);
  const remove = () => rm(directory, { recursive: true, force: true });
  try {
    await mkdir(config.directories.runtime, { recursive: true, mode: 0o700 });
    await mkdir(directory, { mode: 0o700 });
    const credentials = keys.map(([name]) => ({ name, path: path.join(directory, name) }));
    for (const [name, value] of keys) {
      await writeFile(path.join(directory, name), value, { mode: 0o600, flag: 'wx' });
    }
    return { credentials, remove };
  } catch (error) {
    await remove().catch(() => {}); // The first failure is the one to tell.
    throw new OutliveError(
      'state_dir_unwritable',
      `The keys cannot be handed to the daemon: ${(error as Error).message}. It needs room in ${config.directories.runtime}.`,
      { cause: error },
    );
  }
}
