/** The command lines of a nest: util-linux and coreutils do what Node has no call for. */
import { accessSync, constants, realpathSync } from 'node:fs';
import path from 'node:path';
import type { Mount } from './nest-mounts.ts';

const PROGRAMS = ['sh', 'mount', 'unshare', 'nsenter', 'setpriv', 'env', 'sleep'] as const;
/** Absolute paths. */
export type NestPrograms = Readonly<Record<(typeof PROGRAMS)[number], string>>;

/**
 * Where they are looked for, and never on PATH: part of what they do is done with power over
 * the nest, and PATH may begin with a directory that the model can write.
 */
const DIRECTORIES = [
  '/usr/bin',
  '/bin',
  '/usr/sbin',
  '/sbin',
  '/run/current-system/sw/bin',
  '/usr/local/bin',
];

/** PATH of what runs inside before the commands do. */
export const NEST_PATH = DIRECTORIES.join(':');

/** The programs a nest is made with, or the name of one that is missing. */
export function findPrograms(directories = DIRECTORIES): NestPrograms | { missing: string } {
  const found: Partial<Record<string, string>> = {};
  for (const name of PROGRAMS) {
    const file = directories.map((each) => path.join(each, name)).find(isExecutable);
    if (file === undefined) return { missing: name };
    found[name] = file;
  }
  return found as NestPrograms;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(realpathSync(file), constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Who one is, outside and in the nest. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
}

/** What the first process says once commands can enter. */
export const OPEN = 'open';

/**
 * Makes the mounts given as pairs of kind and path, then becomes the nest's first process: one
 * that does nothing, and by ignoring SIGCHLD has the kernel reap the orphans it is given. It
 * is in a second user namespace, where the user is the user again and nothing more; what
 * has power over the mounts is the first one, in which no command ever is.
 */
const SETUP = `
uid=$1 gid=$2 unshare=$3 setpriv=$4 env=$5 sleep=$6 mount=$7
shift 7
while [ $# -gt 0 ]; do
  case $1 in
    pin) "$mount" --rbind "$2" "$2" ;;
    hide) "$mount" -t tmpfs -o ro,nosuid,nodev,noexec,size=4k,nr_inodes=2,mode=000 outlive "$2" ;;
    hold) exec 9<"$2" ;;
    shade) "$mount" -t tmpfs -o nosuid,nodev,noexec,size=64k,nr_inodes=32,mode=0711 outlive "$2" ;;
    show) (umask 066 && mkdir -p "$2") && "$mount" --no-canonicalize --bind /proc/self/fd/9 "$2" && exec 9<&- ;;
    # Of this mount alone: the options of a tmpfs name users that are others in here.
    seal) "$mount" -o remount,bind,ro,nosuid,nodev,noexec "$2" ;;
    clear) "$mount" -t tmpfs -o ro,nosuid,nodev,noexec,size=4k,nr_inodes=2,mode=555 outlive "$2" ;;
    lock) "$mount" --rbind "$2" "$2" && "$mount" -o remount,bind,ro "$2" ;;
    veil) "$mount" --bind /dev/null "$2" ;;
  esac || { echo "cannot $1 $2" >&2; exit 1; }
  shift 2
done
# A person's terminals are files of theirs: commands get their own.
[ ! -d /dev/pts ] || "$mount" -t devpts -o newinstance,ptmxmode=0666,mode=620 outlive /dev/pts ||
  { echo "cannot mount /dev/pts" >&2; exit 1; }
cd / || exit 1
exec "$unshare" --user --map-user="$uid" --map-group="$gid" -- "$setpriv" --no-new-privs -- \\
  /bin/sh -c 'echo ${OPEN} && exec "$0" --ignore-signal=CHLD "$1" infinity >/dev/null 2>&1' "$env" "$sleep"
`;

/** The command that makes a nest and stays its keeper: with its SIGKILL all in it ends. */
export function openCommand(
  programs: NestPrograms,
  { uid, gid }: Identity,
  mounts: readonly Mount[],
): string[] {
  const { unshare, setpriv, env, sleep, mount, sh } = programs;
  return [
    unshare,
    ...['--user', '--map-root-user', '--mount', '--pid', '--ipc', '--fork', '--kill-child'],
    ...['--mount-proc', '--propagation', 'private', '--', sh, '-c', SETUP, 'nest'],
    ...[String(uid), String(gid), unshare, setpriv, env, sleep, mount],
    ...mounts.flatMap(({ kind, path: place }) => [kind, place]),
  ];
}

/**
 * Into the first user namespace with its mounts and processes, and from there into the second.
 * The working directory is looked up by name inside: one that was carried in would be of the
 * mounts outside, and so would be its parents. A signal to the group is for the command: the
 * nsenter that waits for it ignores what would end it sooner.
 */
const ENTER = `
keeper=/proc/$1/ns nsenter=$2 setpriv=$3 env=$4 drop=$5 keys=$6
shift 6
here=$(pwd -P) || exit 126
trap '' TERM INT HUP
exec "$nsenter" --user="$keeper/user" --mount="$keeper/mnt" --ipc="$keeper/ipc" \\
  --pid="$keeper/pid_for_children" --preserve-credentials -- \\
  "$nsenter" --user=/proc/1/ns/user --preserve-credentials -- \\
  "$setpriv" --no-new-privs $drop -- "$env" --chdir="$here" --default-signal=TERM,INT,HUP $keys -- "$@"
`;

/** What is put before a command; `without` are variables it does not get. */
export function enterCommand(
  programs: NestPrograms,
  { uid }: Identity,
  keeper: number,
  without: readonly string[],
): string[] {
  const { sh, nsenter, setpriv, env } = programs;
  // Root is root inside as well, and keeps its powers over an exec unless they are taken away.
  const drop = uid === 0 ? '--bounding-set=-all --inh-caps=-all' : '';
  const keys = without.map((name) => `--unset=${name}`).join(' ');
  return [sh, '-c', ENTER, 'enter', String(keeper), nsenter, setpriv, env, drop, keys];
}
