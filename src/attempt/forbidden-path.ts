/** Keeps Pi's own tools out of the places that the nest keeps commands out of. */
import type { Call } from '../domain/decisions.ts';
import { objectOf, stringOf } from './json.ts';
import { isWithin, judgePath } from './nest-paths.ts';
import { placeOf } from './places.ts';
import type { RunnerContext } from './runner.ts';

/** Tools of Pi that act in its own process, by what they do to their path. */
const ACCESS: Readonly<Record<string, 'read' | 'write'>> = {
  edit: 'write',
  write: 'write',
  read: 'read',
  grep: 'read',
  find: 'read',
  ls: 'read',
};
/** These look into everything below. */
const DEEP: ReadonlySet<string> = new Set(['grep', 'find']);

/** Why the call may not touch its path, for the model; null where it may, or there is no nest. */
export function forbiddenPath(
  { nest, environment }: Pick<RunnerContext, 'nest' | 'environment'>,
  { tool, arguments: given, cwd }: Call,
): string | null {
  const access = ACCESS[tool];
  if (nest === null || access === undefined) return null;
  const asked = stringOf(objectOf(given)['path']) ?? '.';
  const place = placeOf(asked, cwd, environment['HOME']);
  const { resolved, reason } = judgePath(nest.paths, access, place, cwd);
  if (reason !== null || !DEEP.has(tool)) return reason;
  const holdsHidden = nest.paths.hidden.some((hidden) => isWithin(resolved, hidden));
  return holdsHidden ? `${asked} holds places that are out of bounds; search with bash` : null;
}
