/** Removes what dead processes left in the runtime and exits directories. Touches nothing that may live. */
import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { longId } from '../domain/ids.ts';
import { TERMINAL_ATTEMPT_STATUSES } from '../domain/work-unit.ts';
import type { Context } from '../supervisor/context.ts';
import { namesIn, removeTree } from '../supervisor/trees.ts';

/** Younger than this it may be in use by somebody who is about to finish. */
const SETTLED_MS = 2 * 60_000;
const ATTEMPT_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

async function isSettled(context: Context, file: string): Promise<boolean> {
  const { mtimeMs } = await stat(file);
  return context.entropy.now() - mtimeMs > SETTLED_MS;
}

/** Control sockets and credentials of attempts that have ended, or that the store does not know. */
async function sweepRuntime(context: Context): Promise<void> {
  const { runtimeDirectory } = context.settings;
  for (const name of await readdir(runtimeDirectory)) {
    const file = path.join(runtimeDirectory, name);
    const attempt = ATTEMPT_ID.test(name) ? context.store.attempts.get(name) : null;
    const ended = attempt !== null && TERMINAL_ATTEMPT_STATUSES.has(attempt.status);
    // Keys that `outlive daemon start` handed over and was killed before it took them back.
    const handedOver = name.startsWith('daemon-start-') && (await isSettled(context, file));
    if (ended || handedOver) await rm(file, { recursive: true, force: true });
  }
}

/** Decisions for attempts that have ended. */
async function sweepDecisions(context: Context): Promise<void> {
  const { decisionsDirectory } = context.settings;
  for (const name of await readdir(decisionsDirectory)) {
    const attempt = ATTEMPT_ID.test(name) ? context.store.attempts.get(name) : null;
    if (attempt === null || !TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) continue;
    await rm(path.join(decisionsDirectory, name), { recursive: true, force: true });
  }
}

/** Exit records whose script was killed before it put them in place. */
async function sweepExits(context: Context): Promise<void> {
  const { exitsDirectory } = context.settings;
  for (const name of await readdir(exitsDirectory)) {
    const file = path.join(exitsDirectory, name);
    const unfinished = name.startsWith('.') && name.endsWith('.tmp');
    if (unfinished && (await isSettled(context, file))) await rm(file, { force: true });
  }
}

/** Temporary files of attempts whose daemon died before it removed them. */
async function sweepTemporary(context: Context): Promise<void> {
  const { temporaryDirectory } = context.settings;
  for (const name of await namesIn(temporaryDirectory)) {
    const id = longId(name);
    const attempt = id === null ? null : context.store.attempts.get(id);
    if (!attempt || !TERMINAL_ATTEMPT_STATUSES.has(attempt.status)) continue;
    await removeTree(path.join(temporaryDirectory, name));
  }
}

/** Sweeps at start. A failure is told and costs nothing. */
export async function sweep(context: Context): Promise<void> {
  for (const step of [sweepRuntime, sweepExits, sweepDecisions, sweepTemporary]) {
    try {
      await step(context);
    } catch (error) {
      context.log.warn({ err: error }, 'leftovers could not be swept');
    }
  }
}
