/** What must be so before a daemon may touch anything: paths that systemd and sockets can hold. */
import type { Config } from '../config.ts';
import { ensureDirectory } from '../directories.ts';
import { OutliveError } from '../domain/errors.ts';
import { WRAPPER } from '../layout.ts';

/** sockaddr_un holds 108 bytes with its final NUL. */
const SOCKET_PATH_MAX = 107;
const UUID_LENGTH = 36;
/** systemd would expand or split these in a command line. */
const UNSUPPORTED = /["$%'\\\s]/;

/** @throws OutliveError `socket_path_too_long` or `path_unsupported`, with the path. */
export function checkPaths({ directories }: Config): void {
  const control = `${directories.runtime}/${'x'.repeat(UUID_LENGTH)}/control.sock`;
  for (const socket of [directories.apiSocket, control]) {
    const length = Buffer.byteLength(socket);
    if (length <= SOCKET_PATH_MAX) continue;
    throw new OutliveError(
      'socket_path_too_long',
      `${socket} has ${length} bytes, a unix socket path holds ${SOCKET_PATH_MAX}. Set XDG_RUNTIME_DIR to a shorter path.`,
    );
  }
  for (const place of [directories.state, directories.runtime, WRAPPER, process.execPath]) {
    const bad = UNSUPPORTED.exec(place);
    if (!bad) continue;
    throw new OutliveError(
      'path_unsupported',
      `${place} holds ${JSON.stringify(bad[0])}, which systemd would not take literally. Move it to a plain path.`,
    );
  }
}

/** @throws OutliveError `disk_full` or `state_dir_unwritable`, with the directory. */
export function makeDirectories({ directories }: Config): void {
  const { attempts, sessions, exits, decisions, token, runtime, cache } = directories;
  for (const directory of [attempts, sessions, exits, decisions, token, runtime, cache]) {
    ensureDirectory(directory);
  }
}
