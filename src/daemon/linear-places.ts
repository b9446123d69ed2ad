/** Where the Linear agent keeps work trees, and what it knows of them. */
import path from 'node:path';
import type { Config } from '../config.ts';

export interface LinearPlaces {
  readonly trees: string;
  readonly records: string;
  readonly locks: string;
}

/**
 * Work trees lie beside our directories and not in them: a nest hides all that is in those, and
 * refuses a work tree that it would hide. Locks are shared by all daemons of this user, since
 * two workspaces may have the same repository.
 */
export function linearPlaces({ directories, workspace, file }: Config): LinearPlaces {
  const { state, userRuntime } = directories;
  const parent = path.dirname(state);
  const beside =
    path.basename(parent) === 'outlive'
      ? path.join(path.dirname(parent), 'outlive-trees', workspace)
      : `${state}-trees`;
  return {
    trees: file.linear?.trees ?? beside,
    records: path.join(state, 'linear', 'trees'),
    locks: path.join(userRuntime, 'outlive', 'linear-locks'),
  };
}
