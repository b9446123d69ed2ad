/** Where a path that a tool is given leads, in the way Pi takes it, links followed. */
import { readlinkSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { IsInside } from '../domain/tool-policy.ts';
import { errorCode } from './files.ts';

const ODD_SPACES = /[\u00A0\u2000-\u200A\u202F\u205F\u3000]/g;
/** As many links as the kernel follows (path_resolution(7)). */
const MAX_LINKS = 40;

/** The absolute path that Pi's tools make of their `path` argument. */
export function placeOf(given: string, cwd: string, home: string | undefined): string {
  const plain = given.replaceAll(ODD_SPACES, ' ').replace(/^@/, '');
  if (plain === '~' || plain.startsWith('~/')) return path.join(home ?? homedir(), plain.slice(1));
  if (plain.startsWith('file://')) return fileURLToPath(plain);
  return path.resolve(cwd, plain);
}

/** Tells of paths relative to `cwd` whether they lie in `tree`. What cannot be found out is outside. */
export function insideOf(tree: string, cwd: string, home: string | undefined): IsInside {
  return (given) => {
    // Another person's home: the shell knows which.
    if (/^~[^/]/.test(given)) return false;
    try {
      const root = realpathSync(tree);
      const place = realOf(placeOf(given, cwd, home), MAX_LINKS);
      return place === root || place.startsWith(root === '/' ? root : `${root}/`);
    } catch {
      return false;
    }
  };
}

/** realpath(3) of what need not exist; a link that leads nowhere yet is followed all the same. */
function realOf(file: string, links: number): string {
  if (links === 0) throw new Error(`too many links: ${file}`);
  try {
    return realpathSync(file);
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
  }
  const target = linkOf(file);
  if (target !== null) return realOf(path.resolve(path.dirname(file), target), links - 1);
  const above = path.dirname(file);
  return path.join(realOf(above, links), path.basename(file));
}

function linkOf(file: string): string | null {
  try {
    return readlinkSync(file);
  } catch {
    return null;
  }
}
