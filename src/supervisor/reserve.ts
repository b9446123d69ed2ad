/**
 * Room on the disk kept for retention itself: removing has to be written down first, and
 * on a full disk there is no room for that.
 */
import { open, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from './context.ts';

const RESERVE_BYTES = 512 * 1024;

const reserveOf = ({ store }: Context): string =>
  path.join(path.dirname(store.file), 'outlive.reserve');

/** Makes it if it is not there; without room there is none, and the next run tries again. */
export async function keepReserve(context: Context): Promise<void> {
  const file = reserveOf(context);
  try {
    const handle = await open(file, 'wx', 0o600);
    try {
      await handle.writeFile(Buffer.alloc(RESERVE_BYTES));
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // It is there already, or a part of it that the next run would take for the whole.
    if (code !== 'EEXIST') await rm(file, { force: true });
  }
}

/** Gives it up. @returns false when there was none any more. */
export async function spendReserve(context: Context): Promise<boolean> {
  try {
    await rm(reserveOf(context));
    return true;
  } catch {
    return false;
  }
}
