/**
 * What the direct executor keeps on disk: an entry per attempt it was asked to start, the
 * keeper's own word of who it is, and the scripts. All of it is read afresh each time: a
 * daemon that dies takes nothing with it.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { type ExitRecord, exitRecordSchema, isNoFile } from '../domain/evidence.ts';
import { writeAtomically } from './atomic-file.ts';

/** In the attempt's directory: who keeps it (direct-attempt.sh writes it). */
export const PROCESS_FILE = 'process.json';
/** A FIFO in the attempt's directory that ends with the last of keeper, timeout and wrapper. */
export const aliveFile = ({ attemptDirectory }: Entry, { pid }: KeeperProcess): string =>
  path.join(attemptDirectory, `alive.${pid}`);

const entrySchema = z.object({
  v: z.literal(1),
  unit: z.string(),
  nonce: z.string(),
  attemptDirectory: z.string(),
  /** Of the start: what was asked on another boot comes no more. */
  bootId: z.string(),
});
export type Entry = z.infer<typeof entrySchema>;

const processSchema = z.object({
  v: z.literal(1),
  nonce: z.string(),
  pid: z.int(),
  /** Field 22 of /proc/PID/stat. */
  startTicks: z.int(),
  bootId: z.string(),
  /** Hundredths of a second after boot: the start, and when timeout acts. */
  startedCs: z.int(),
  deadlineCs: z.int(),
});
export type KeeperProcess = z.infer<typeof processSchema>;

async function readJson<Schema extends z.ZodType>(
  file: string,
  schema: Schema,
): Promise<z.output<Schema> | null> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  try {
    const parsed = schema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null; // Whoever reads the evidence tells of a record that cannot be read.
  }
}

/** The keeper of an attempt, null before it has introduced itself. */
export async function readKeeper(entry: Entry): Promise<KeeperProcess | null> {
  const found = await readJson(path.join(entry.attemptDirectory, PROCESS_FILE), processSchema);
  return found?.nonce === entry.nonce ? found : null;
}

export async function readExitRecord(exits: string, nonce: string): Promise<ExitRecord | null> {
  const file = path.join(exits, `${nonce}.json`);
  const record = await readJson(file, exitRecordSchema).catch((error: unknown) => {
    if (isNoFile(error)) return null; // As one that cannot be parsed.
    throw error;
  });
  return record?.nonce === nonce ? record : null;
}

/** The entries: one file per attempt that was asked for and is not yet let go. */
export class Registry {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  #file(unit: string): string {
    return path.join(this.#directory, `${unit}.json`);
  }

  async get(unit: string): Promise<Entry | null> {
    const entry = await readJson(this.#file(unit), entrySchema);
    return entry?.unit === unit ? entry : null;
  }

  /** Durable when it resolves. */
  async put(entry: Entry): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await writeAtomically(this.#file(entry.unit), JSON.stringify(entry), 0o600);
  }

  async drop(unit: string): Promise<void> {
    await rm(this.#file(unit), { force: true });
  }

  async units(): Promise<readonly string[]> {
    const names = await readdir(this.#directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    return names
      .filter((name) => name.endsWith('.service.json'))
      .map((name) => name.slice(0, -'.json'.length));
  }
}
