/** Which Pi runs, read from its package: asking Pi itself would cost a second start. */
import { readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { isObject, parseJson, stringOf } from './json.ts';

// cli.js lies at most this deep in its package.
const MAX_LEVELS = 4;

/** Version of the package that the last part of the command belongs to, null when it cannot be told. */
export function piVersion(command: readonly string[]): string | null {
  const program = command.at(-1) ?? '';
  if (!path.isAbsolute(program)) return null;
  try {
    let directory = path.dirname(realpathSync(program));
    for (let level = 0; level < MAX_LEVELS; level++) {
      const found = versionIn(path.join(directory, 'package.json'));
      if (found !== null) return found;
      directory = path.dirname(directory);
    }
  } catch {
    // Not a file: a version is nothing to fail for.
  }
  return null;
}

function versionIn(file: string): string | null {
  try {
    const manifest = parseJson(readFileSync(file, 'utf8'));
    if (!isObject(manifest) || !String(manifest['name']).endsWith('pi-coding-agent')) return null;
    return stringOf(manifest['version']);
  } catch {
    return null;
  }
}
