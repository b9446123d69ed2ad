/**
 * Artifacts: the files of an attempt that people may read. They are the wrapper's, but lie
 * where a run that has no nest could have put anything: what is opened here is a plain file
 * of the attempt's own directory, reached over no link, or nothing.
 */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import {
  ARTIFACT_FILES,
  ARTIFACT_KINDS,
  ARTIFACT_MAX_BYTES,
  type ArtifactKind,
} from '../domain/artifacts.ts';
import { ATTEMPT_FILES, DIFF_CUT } from '../domain/attempt-files.ts';
import { OutliveError } from '../domain/errors.ts';
import { uuidv7 } from '../domain/ids.ts';
import type { ArtifactRow } from '../store/artifacts.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { Context, Settings } from './context.ts';
import type { Transaction } from './writer.ts';

/** From open(2); Node does not name it. */
const O_PATH = 0o10_000_000;
const DIRECTORY = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** A FIFO would wait for its writer. */
const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const CHUNK_BYTES = 64 * 1024;
/** Room for the last line of a diff. */
const TAIL_BYTES = 4 * 1024;
/** A launch file above this holds a prompt that is not worth reading for one number. */
const LAUNCH_BYTES = 1024 * 1024;

/** A file as it was when its attempt had ended. */
export interface FoundArtifact {
  readonly kind: ArtifactKind;
  readonly bytes: number;
  readonly truncated: boolean;
  readonly sha256: string;
}

interface OpenFile {
  readonly handle: FileHandle;
  readonly bytes: number;
}

type Owner = Pick<AttemptRow, 'id' | 'workUnitId'>;

/** Of our own lack, and over in a moment. */
const isPassing = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE', 'ENOMEM', 'EIO'].includes((error as NodeJS.ErrnoException).code ?? '');

const nothingThere = (error: unknown): boolean =>
  ['ENOENT', 'ENOTDIR', 'ELOOP'].includes((error as NodeJS.ErrnoException).code ?? '');

/** Uses a directory while it is held open, by a path that leads nowhere else meanwhile. */
async function within<Result>(
  parent: string,
  name: string,
  use: (directory: string) => Promise<Result>,
): Promise<Result> {
  const directory = await open(path.join(parent, name), DIRECTORY);
  try {
    return await use(`/proc/self/fd/${directory.fd}`);
  } finally {
    await directory.close();
  }
}

/** Null where there is no plain file with one name, or one too long to be ours. */
async function openFile(
  { attemptsDirectory }: Settings,
  { workUnitId, id }: Owner,
  name: string,
): Promise<OpenFile | null> {
  let handle: FileHandle;
  try {
    handle = await within(attemptsDirectory, workUnitId, (workUnit) =>
      within(workUnit, id, (attempt) => open(path.join(attempt, name), FILE)),
    );
  } catch (error) {
    if (nothingThere(error)) return null;
    throw error;
  }
  const info = await handle.stat();
  // A second name could be that of any file of this user's.
  if (info.isFile() && info.nlink === 1 && info.size <= ARTIFACT_MAX_BYTES) {
    return { handle, bytes: info.size };
  }
  await handle.close();
  return null;
}

/** The bytes of the file, in pieces; throws when there are fewer than there were. Closes it. */
async function* readPieces({ handle, bytes }: OpenFile): AsyncGenerator<Buffer, void> {
  try {
    for (let at = 0; at < bytes; ) {
      const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, bytes - at));
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, at);
      if (bytesRead === 0) throw new Error('the file became shorter while it was read');
      at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}

/** Opens below `parent` over no link, holding each directory only as long as it takes. */
function openBelow(parent: string, [name = '', ...rest]: readonly string[]): number {
  if (rest.length === 0) return openSync(path.join(parent, name), FILE);
  const directory = openSync(path.join(parent, name), DIRECTORY);
  try {
    return openBelow(`/proc/self/fd/${directory}`, rest);
  } finally {
    closeSync(directory);
  }
}

export interface Tail {
  readonly text: string;
  /** False where there is more before it. */
  readonly whole: boolean;
}

/**
 * The last `maxBytes` of what an ended attempt printed. Not in pieces and at once: for what
 * must be known before anybody else may begin. Empty where no such file of ours is there.
 */
export function capturedTail(
  { attemptsDirectory }: Settings,
  { workUnitId, id }: Owner,
  kind: 'stdout' | 'stderr',
  maxBytes: number,
): Tail {
  let fd: number;
  try {
    fd = openBelow(attemptsDirectory, [workUnitId, id, ATTEMPT_FILES[kind]]);
  } catch (error) {
    // Whatever is wrong with it was done to it, and is so at the next look, too.
    if (!isPassing(error)) return { text: '', whole: true };
    throw error;
  }
  try {
    const info = fstatSync(fd);
    const { size, nlink } = info;
    if (!info.isFile() || nlink !== 1) return { text: '', whole: true };
    const bytes = Buffer.alloc(Math.min(size, maxBytes));
    const from = size - bytes.length;
    const read = readSync(fd, bytes, 0, bytes.length, from);
    return { text: bytes.toString('utf8', 0, read), whole: from === 0 };
  } finally {
    closeSync(fd);
  }
}

async function find(
  settings: Settings,
  owner: Owner,
  kind: ArtifactKind,
  captureBytes: number,
): Promise<FoundArtifact | null> {
  const file = await openFile(settings, owner, ARTIFACT_FILES[kind]);
  if (file === null) return null;
  // What the store tells of has to outlast a power cut, as far as the file system can do that.
  await file.handle.sync().catch(() => undefined);
  const hash = createHash('sha256');
  let tail = Buffer.alloc(0);
  for await (const piece of readPieces(file)) {
    hash.update(piece);
    tail = Buffer.concat([tail, piece]).subarray(-TAIL_BYTES);
  }
  const { bytes } = file;
  if (bytes === 0) return null;
  // What was cut is as long as it may be, and its note comes on top.
  const truncated = bytes >= captureBytes || (kind === 'diff' && endsInCut(tail));
  return { kind, bytes, truncated, sha256: hash.digest('hex') };
}

const endsInCut = (tail: Buffer): boolean =>
  tail.toString().trimEnd().split('\n').at(-1)?.startsWith(DIFF_CUT) ?? false;

/** What the wrapper was told; the setting may be another one by now. */
async function captureBytesOf(settings: Settings, owner: Owner): Promise<number> {
  const file = await openFile(settings, owner, ATTEMPT_FILES.launch);
  if (file === null) return settings.captureBytes;
  const pieces: Buffer[] = [];
  for await (const piece of readPieces(file)) {
    if (file.bytes > LAUNCH_BYTES) return settings.captureBytes;
    pieces.push(piece);
  }
  const { captureBytes } = JSON.parse(Buffer.concat(pieces).toString()) as {
    captureBytes?: unknown;
  };
  return typeof captureBytes === 'number' ? captureBytes : settings.captureBytes;
}

/**
 * The artifacts of an attempt that runs no more: files with something in them. Reads only,
 * so it may be repeated. One that cannot be read is told to the log, and delays no end.
 */
export async function gatherArtifacts(
  { settings, log }: Context,
  owner: Owner,
): Promise<readonly FoundArtifact[]> {
  const failed = (what: string) => (error: unknown) => {
    log.warn({ err: error, attempt: owner.id, what }, 'an artifact cannot be read');
    return null;
  };
  const captureBytes =
    (await captureBytesOf(settings, owner).catch(failed(ATTEMPT_FILES.launch))) ??
    settings.captureBytes;
  const found: FoundArtifact[] = [];
  for (const kind of ARTIFACT_KINDS) {
    const one = await find(settings, owner, kind, captureBytes).catch(failed(kind));
    if (one !== null) found.push(one);
  }
  return found;
}

/** Stores them with an event each; part of the transaction that ends the attempt. */
export function recordArtifacts(
  { store, entropy }: Context,
  transaction: Transaction,
  { id: attemptId, workUnitId }: Owner,
  found: readonly FoundArtifact[],
): void {
  for (const { kind, bytes, truncated, sha256 } of found) {
    const id = uuidv7(entropy);
    const fileName = ARTIFACT_FILES[kind];
    const createdAt = transaction.at;
    store.artifacts.insert({
      ...{ id, workUnitId, attemptId, kind, fileName },
      ...{ bytes, truncated, sha256, createdAt },
    });
    const data = { artifactId: id, kind, fileName, bytes, truncated, sha256 };
    transaction.append(workUnitId, [
      { type: 'artifact.created', actor: 'system', attemptId, data },
    ]);
  }
}

/**
 * The content of an artifact, as long as it was stored; destroying it closes the file.
 * @throws OutliveError `artifact_gone` where the file is not there any more, or another one.
 */
export async function openArtifact(
  settings: Settings,
  { workUnitId, attemptId, kind, bytes, id }: ArtifactRow,
): Promise<Readable> {
  const file = await openFile(settings, { workUnitId, id: attemptId }, ARTIFACT_FILES[kind]);
  if (file?.bytes === bytes) {
    const { handle } = file;
    // Also where nobody began to read.
    return Readable.from(readPieces(file)).once('close', () => void handle.close());
  }
  await file?.handle.close();
  throw new OutliveError(
    'artifact_gone',
    `The file of the artifact "${id}" (${path.join(workUnitId, attemptId)}) is not there any more as it was stored.`,
  );
}
