/** What a file says about the daemon that owns a workspace. Nothing is ever decided from it. */
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

const ownerSchema = z.object({
  workspaceId: z.string(),
  runtimeInstanceId: z.string(),
  pid: z.int(),
  host: z.string().nullable(),
  port: z.int().nullable(),
  socket: z.string(),
  startedAt: z.string(),
  version: z.string(),
  /** Null before the store is open. */
  schemaVersion: z.int().nullable(),
  /** Null in a description by an outlive that did not say so. */
  stateDirectory: z.string().nullable().default(null),
});
export type RuntimeOwner = z.infer<typeof ownerSchema>;

/** The owner a file describes; null when it is missing or no description. */
export function readOwner(file: string): RuntimeOwner | null {
  try {
    return ownerSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    return null;
  }
}

export function syncDirectory(directory: string): void {
  const handle = openSync(directory, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/** Replaces the description, durably: a takeover after a power cut still knows from whom. */
export function writeOwner(file: string, owner: RuntimeOwner): void {
  const temporary = `${file}.${owner.pid}`;
  try {
    const handle = openSync(temporary, 'w', 0o600);
    try {
      writeFileSync(handle, `${JSON.stringify(owner, null, 2)}\n`);
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

/** An owner in words. */
export function ownerText(owner: RuntimeOwner | null): string {
  if (!owner) return 'it has not said who it is yet';
  const { pid, runtimeInstanceId, startedAt, socket } = owner;
  return `pid ${pid}, instance ${runtimeInstanceId}, since ${startedAt}, socket ${socket}`;
}
