/** Small files that are there whole or not at all. */
import { randomUUID } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Temporary file in the same directory, fsync, rename, fsync of the directory. */
export async function writeAtomically(file: string, content: string, mode: number): Promise<void> {
  const temporary = path.join(path.dirname(file), `.${path.basename(file)}.${randomUUID()}.tmp`);
  try {
    const handle = await open(temporary, 'wx', mode);
    try {
      await handle.writeFile(content);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(path.dirname(file));
}

/** Makes the file hold exactly this; writes only when it does not. True when it wrote. */
export async function ensureFile(file: string, content: string, mode: number): Promise<boolean> {
  const present = await readFile(file, 'utf8').catch(() => null);
  if (present === content) return false;
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await writeAtomically(file, content, mode);
  return true;
}
