/** Where kernel locks and shared memory can be believed: on file systems of this machine. */
import { statfsSync } from 'node:fs';
import { OutliveError } from '../domain/errors.ts';

/** f_type of statfs(2) (linux/magic.h): file systems that several machines may have mounted. */
const NETWORK: ReadonlyMap<number, string> = new Map([
  [0x6969, 'nfs'],
  [0xff534d42, 'cifs'],
  [0xfe534d42, 'smb2'],
  [0x517b, 'smb'],
  [0x5346414f, 'afs'],
  [0x6b414653, 'kafs'],
  [0x00c36400, 'ceph'],
  [0x73757245, 'coda'],
  [0x0bd00bd0, 'lustre'],
  [0x7461636f, 'ocfs2'],
  [0x01161970, 'gfs2'],
  [0x564c, 'ncp'],
]);
/** These may be either. */
const UNSURE: ReadonlyMap<number, string> = new Map([
  [0x65735546, 'fuse'],
  [0x01021997, '9p'],
  [0x786f4256, 'vboxsf'],
]);

export interface FileSystem {
  readonly name: string;
  readonly reach: 'machine' | 'network' | 'unsure';
}

/** What a file system type says about who else may have it. */
export function fileSystemOf(type: number): FileSystem {
  const magic = type >>> 0; // 32 bits; some come sign-extended.
  const network = NETWORK.get(magic);
  if (network !== undefined) return { name: network, reach: 'network' };
  const unsure = UNSURE.get(magic);
  if (unsure !== undefined) return { name: unsure, reach: 'unsure' };
  return { name: `0x${magic.toString(16)}`, reach: 'machine' };
}

/**
 * Refuses a directory in which a lock would not keep a daemon of another machine out.
 * @throws OutliveError `network_file_system`.
 */
export function requireLocal(
  directory: string,
  warn: (message: string) => void,
  typeOf: (directory: string) => number = (place) => statfsSync(place).type,
): void {
  const { name, reach } = fileSystemOf(typeOf(directory));
  if (reach === 'network') {
    throw new OutliveError(
      'network_file_system',
      `${directory} is on ${name}, which other machines may share: neither the lock nor the store can be trusted there. Set XDG_STATE_HOME to a directory of a local disk.`,
    );
  }
  if (reach === 'unsure') {
    warn(`${directory} is on ${name}: if other machines share it, no lock guards the workspace`);
  }
}
