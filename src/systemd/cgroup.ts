/**
 * Control groups as files: whether any process is left in a unit's group. systemd
 * empties a unit's ControlGroup property once it is dead, so the path is stored at the
 * start and looked at here (cgroups(7), man systemd.cgroup).
 */
import { watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { OutliveError } from '../domain/errors.ts';
import type { Timers } from './timers.ts';

/** Between two looks where the kernel grants no inotify watch (its limit is per user). */
const LOOK_AGAIN_MS = 100;

/** Where systemd keeps its groups: all of v2, or the v2 part of a hybrid hierarchy. */
const USUAL = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'];

/** Mount point of the cgroup v2 hierarchy in the text of /proc/self/mountinfo; null without one. */
export function cgroup2Mount(mountinfo: string): string | null {
  const mounts = mountinfo.split('\n').flatMap((line) => {
    const [left = '', right = ''] = line.split(' - ');
    const point = left.split(' ')[4];
    if (point === undefined || right.split(' ')[0] !== 'cgroup2') return [];
    return [point.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(parseInt(octal, 8)))];
  });
  return USUAL.find((usual) => mounts.includes(usual)) ?? mounts[0] ?? null;
}

/** False when the text of a cgroup.events file says that no process is left. */
export function saysPopulated(events: string): boolean {
  return !/^populated 0$/m.test(events);
}

export class Cgroups {
  readonly #root: string;
  readonly #timers: Timers;

  constructor(root: string, timers: Timers) {
    this.#root = root;
    this.#timers = timers;
  }

  /**
   * Finds the hierarchy in which the manager keeps its units.
   * @param managerGroup the manager's own ControlGroup property
   * @throws OutliveError `no_user_manager` where it cannot be seen: there every group would
   * look gone, and "gone" means "empty".
   */
  static async detect(managerGroup: string, timers: Timers): Promise<Cgroups> {
    const root = cgroup2Mount(await readFile('/proc/self/mountinfo', 'utf8'));
    if (root !== null) {
      const cgroups = new Cgroups(root, timers);
      if (await cgroups.isPopulated(managerGroup)) return cgroups;
    }
    throw new OutliveError(
      'no_user_manager',
      `The user manager's control group "${managerGroup}" is in no cgroup v2 hierarchy mounted here (${root ?? 'none is'}).`,
    );
  }

  /**
   * True once no process is left in the group or below it, or the group is gone; false at
   * the deadline. Empty may be for a moment only: systemd runs ExecStopPost in the same
   * group after the main process is gone. @param controlGroup systemd's path below the root, `/user.slice/…`
   */
  async waitEmpty(controlGroup: string, deadlineMs: number): Promise<boolean> {
    const file = this.#events(controlGroup);
    const changes = new Changes(file, deadlineMs, this.#timers);
    try {
      // The watch is there before the first look, so no change falls between the two.
      while (await readPopulated(file)) {
        if (!(await changes.next())) return !(await readPopulated(file));
      }
      return true;
    } finally {
      changes.stop();
    }
  }

  /** False when no process is left in the group or below it, or the group is gone. */
  async isPopulated(controlGroup: string): Promise<boolean> {
    return await readPopulated(this.#events(controlGroup));
  }

  #events(controlGroup: string): string {
    const group = path.posix.normalize(controlGroup);
    if (!group.startsWith('/') || group === '/') {
      throw new OutliveError('internal', `"${controlGroup}" is no control group of a unit.`);
    }
    return path.join(this.#root, group, 'cgroup.events');
  }
}

async function readPopulated(file: string): Promise<boolean> {
  try {
    return saysPopulated(await readFile(file, 'utf8'));
  } catch (error) {
    // ENODEV: the group went away between open and read.
    if (isCode(error, 'ENOENT', 'ENODEV')) return false;
    throw error;
  }
}

function isCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && codes.some((code) => error.code === code);
}

/**
 * Changes of a group, noted, so that one that comes during a look is not lost. The kernel
 * reports its cgroup.events as modified when `populated` changes, but not for the last
 * time when the group is removed right then (measured on 6.18): that is seen as a deletion
 * in the directory above.
 */
class Changes {
  readonly #stop: (() => void)[] = [];
  #pending = false;
  #over = false;
  #wake: () => void = () => {};

  constructor(eventsFile: string, deadlineMs: number, timers: Timers) {
    this.#stop.push(
      timers.after(deadlineMs, () => {
        this.#over = true;
        this.#wake();
      }),
    );
    try {
      this.#watch(eventsFile);
      this.#watch(path.resolve(eventsFile, '../..'));
    } catch (error) {
      // Gone already: the first look says so. No watch to be had: look now and then.
      if (!isCode(error, 'ENOENT')) this.#tick(timers);
    }
  }

  #watch(target: string): void {
    const watcher = watch(target, { persistent: false }, () => this.#changed());
    watcher.on('error', () => this.#changed());
    this.#stop.push(() => watcher.close());
  }

  /** Resolves to true at a change, to false at the deadline. */
  async next(): Promise<boolean> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (this.#pending || this.#over) resolve();
    });
    this.#pending = false;
    return !this.#over;
  }

  stop(): void {
    for (const stop of this.#stop) stop();
  }

  #changed(): void {
    this.#pending = true;
    this.#wake();
  }

  #tick(timers: Timers): void {
    let cancel = (): void => {};
    const again = (): void => {
      cancel = timers.after(LOOK_AGAIN_MS, () => {
        this.#changed();
        again();
      });
    };
    again();
    this.#stop.push(() => cancel());
  }
}
