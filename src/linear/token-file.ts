/** The pair of tokens on disk: mode 0600, there whole or not at all, durable before it is used. */
import { randomUUID } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import { syncDirectory } from '../store/owner-file.ts';

const pairSchema = z.object({
  version: z.literal(1),
  refreshToken: z.string().min(1),
  accessToken: z.string().min(1).nullable(),
  /** Milliseconds since the epoch. */
  expiresAt: z.number().nullable(),
  /** A refresh was begun and its outcome is not here: the first thing to do is to ask again. */
  refreshing: z.boolean(),
});
export type TokenPair = Omit<z.infer<typeof pairSchema>, 'version'>;

/** Where a pair is kept. Writing is synchronous: no other turn of the loop sees half of it. */
export interface TokenStore {
  /** Null when there is none. @throws OutliveError `config_unreadable` for a damaged one. */
  load(): TokenPair | null;
  /** Returns once it is durable. @throws the file system's error. */
  save(pair: TokenPair): void;
}

export function tokenFile(file: string): TokenStore {
  return { load: () => load(file), save: (pair) => save(file, pair) };
}

function load(file: string): TokenPair | null {
  try {
    const { version: _one, ...pair } = pairSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
    return pair;
  } catch (error) {
    if ((error as { code?: string }).code === 'ENOENT') return null;
    // Not its cause: a parser's message quotes what it read.
    throw new OutliveError(
      'config_unreadable',
      `${file}: the tokens cannot be read. Authorise the app again.`,
    );
  }
}

function save(file: string, pair: TokenPair): void {
  const temporary = path.join(path.dirname(file), `.${path.basename(file)}.${randomUUID()}.tmp`);
  try {
    const handle = openSync(temporary, 'wx', 0o600);
    try {
      writeFileSync(handle, `${JSON.stringify({ version: 1, ...pair })}\n`);
      fsyncSync(handle);
    } finally {
      closeSync(handle);
    }
    renameSync(temporary, file);
    syncDirectory(path.dirname(file));
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}
