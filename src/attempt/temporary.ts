/**
 * The directory for temporary files of a Pi run. Pi writes each long output of a command to
 * a `pi-bash-*.log` in TMPDIR, whole, and removes none; in a directory of the attempt's own
 * they end with it, and until then take a bounded room.
 */
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  unlinkSync,
} from 'node:fs';
import path from 'node:path';
import type { Emit } from './event-data.ts';
import { errorCode, makeDirectory } from './files.ts';

/** For all long outputs together, as they lie on the disk. */
export const LOGS_BYTES = 256 * 1024 * 1024;
/** More than this right in the directory is worth a sentence: it is not ours to remove. */
const OTHERS_BYTES = 1024 * 1024 * 1024;
/** Between two looks, milliseconds. */
const LOOK_MS = 1_000;
const LOG = /^pi-(?:bash|output)-.*\.log$/;
const BLOCK = 512;
/** No link is followed, and nobody is waited for. */
const JUST_THIS = constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

interface TemporaryFile {
  readonly file: string;
  readonly bytes: number;
  readonly changedMs: number;
}

/**
 * Makes the directory of the launch file, mode 0700.
 * @returns its path; null, and a sentence to the journal, where it cannot be made or is there
 *   already: what somebody else made is not for us.
 */
export function makeTemporary(
  directory: string | null,
  warn: (sentence: string) => void,
): string | null {
  if (directory === null) return null;
  try {
    makeDirectory(path.dirname(directory));
    mkdirSync(directory, { mode: 0o700 });
    return directory;
  } catch (error) {
    warn(`Pi runs without a TMPDIR of its own: ${directory}: ${errorCode(error)}`);
    return null;
  }
}

/** Keeps what Pi leaves in its directory within bounds, and says so. */
export class TemporaryWatch {
  readonly #directory: string;
  readonly #say: (message: string) => void;
  readonly #logsBytes: number;
  #looked = Number.NEGATIVE_INFINITY;
  #toldLogs = false;
  #toldOthers = false;

  constructor(directory: string, emit: Emit, logsBytes: number = LOGS_BYTES) {
    this.#directory = directory;
    this.#logsBytes = logsBytes;
    this.#say = (message) => emit('progress', { kind: 'temporary_space', message });
  }

  /** To be called whenever a tool was heard of: only then have its logs grown. */
  look(): void {
    const now = performance.now();
    if (now - this.#looked < LOOK_MS) return;
    this.#looked = now;
    const files = filesIn(this.#directory);
    const isLog = ({ file }: TemporaryFile): boolean => LOG.test(path.basename(file));
    this.#bound(files.filter(isLog));
    const others = sum(files.filter((file) => !isLog(file)));
    if (others <= OTHERS_BYTES || this.#toldOthers) return;
    this.#toldOthers = true;
    this.#say(`${inMebibytes(others)} of temporary files lie in ${this.#directory} (TMPDIR)`);
  }

  /** The oldest go first; of the newest, which may be being written, the room is given back. */
  #bound(logs: readonly TemporaryFile[]): void {
    let left = sum(logs);
    if (left <= this.#logsBytes) return;
    for (const { file, bytes } of logs.toSorted((a, b) => a.changedMs - b.changedMs)) {
      if (left <= this.#logsBytes) break;
      const isLast = left === bytes;
      if (isLast ? empty(file) : remove(file)) left -= bytes;
    }
    if (this.#toldLogs) return;
    this.#toldLogs = true;
    const bound = inMebibytes(this.#logsBytes);
    this.#say(`Whole outputs that Pi had put aside took more than ${bound}; the oldest are gone`);
  }
}

const inMebibytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;

const sum = (files: readonly TemporaryFile[]): number =>
  files.reduce((total, { bytes }) => total + bytes, 0);

/** Regular files right in the directory; none where it cannot be read. */
function filesIn(directory: string): TemporaryFile[] {
  try {
    return readdirSync(directory).flatMap((name) => {
      const file = path.join(directory, name);
      const info = lstatSync(file, { throwIfNoEntry: false });
      if (!info?.isFile()) return [];
      return [{ file, bytes: info.blocks * BLOCK, changedMs: info.mtimeMs }];
    });
  } catch {
    return [];
  }
}

function remove(file: string): boolean {
  try {
    unlinkSync(file);
    return true;
  } catch {
    return false;
  }
}

/** Pi writes on behind a hole, which takes no room. */
function empty(file: string): boolean {
  try {
    const fd = openSync(file, JUST_THIS);
    try {
      const { nlink } = fstatSync(fd);
      if (nlink === 1) ftruncateSync(fd, 0);
      return nlink === 1;
    } finally {
      closeSync(fd);
    }
  } catch {
    return false;
  }
}
