/**
 * What is known of each work tree, in a file of its own that is written before anything is
 * done and says how far it has come. So whoever comes after a crash knows whose a half-made
 * directory is, and that nobody has worked in it yet.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { writeDurably } from '../supervisor/attempt-directory.ts';
import { namesIn } from '../supervisor/trees.ts';

const recordSchema = z.object({
  /** The id; the session's where it has no issue. */
  key: z.string(),
  /** As configured. */
  repository: z.string(),
  /** The git directory that all work trees of the repository share. */
  common: z.string(),
  path: z.string(),
  branch: z.string(),
  /** Another one each time that it is made. */
  made: z.string().default(''),
  /** `making`: nobody has been told of it. `removing`: it may have been moved aside. */
  state: z.enum(['making', 'ready', 'removing']),
});
export type TreeRecord = z.infer<typeof recordSchema>;

export class TreeRecords {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** @throws what reading may throw, and for a record that is none. */
  async read(key: string): Promise<TreeRecord | null> {
    return this.#load(`${nameOf(key)}.json`);
  }

  async all(): Promise<TreeRecord[]> {
    const names = await namesIn(this.#directory);
    const files = names.filter((name) => name.endsWith('.json') && !name.startsWith('.'));
    const records = await Promise.all(files.map((name) => this.#load(name)));
    return records.filter((record) => record !== null);
  }

  /** Durable when it resolves. */
  async write(record: TreeRecord): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await writeDurably(this.#file(record.key, 'json'), `${JSON.stringify(record)}\n`);
  }

  async remove(key: string): Promise<void> {
    await this.forgetSetUp(key);
    await rm(this.#file(key, 'json'), { force: true });
  }

  isSetUp(key: string): boolean {
    return existsSync(this.#file(key, 'set-up'));
  }

  async markSetUp(key: string): Promise<void> {
    await writeDurably(this.#file(key, 'set-up'), '');
  }

  async forgetSetUp(key: string): Promise<void> {
    await rm(this.#file(key, 'set-up'), { force: true });
  }

  #file(key: string, extension: string): string {
    return path.join(this.#directory, `${nameOf(key)}.${extension}`);
  }

  async #load(name: string): Promise<TreeRecord | null> {
    try {
      return recordSchema.parse(
        JSON.parse(await readFile(path.join(this.#directory, name), 'utf8')),
      );
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  }
}

/** Linear's ids are UUIDs; what is not shaped like one cannot lead anywhere else. */
export const nameOf = (key: string): string =>
  /^[A-Za-z0-9][A-Za-z0-9-]{0,63}$/.test(key)
    ? key
    : createHash('sha256').update(key).digest('hex').slice(0, 32);
