/**
 * Tells when keeper, timeout and wrapper of an attempt are all gone. They hold a FIFO open,
 * and the kernel ends it for its reader with the last of them, however they died. Where no
 * FIFO is to be had the keeper is looked at now and then: Node has no pidfd.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { Socket } from 'node:net';
import { aliveFile, type Entry, type KeeperProcess } from './direct-files.ts';

const LOOK_AGAIN_MS = 1_000;

export class AliveWatches {
  readonly #onGone: (unit: string) => void;
  readonly #watches = new Map<string, () => void>();
  /** Units whose FIFO ended while they lived: it says nothing about them. */
  readonly #distrusted = new Set<string>();

  constructor(onGone: (unit: string) => void) {
    this.#onGone = onGone;
  }

  /** Watches it, unless it is watched; one call of `onGone`, then it is forgotten. */
  watch(entry: Entry, keeper: KeeperProcess | null): void {
    const { unit } = entry;
    if (this.#watches.has(unit)) return;
    const stop = keeper && this.#fifo(unit, aliveFile(entry, keeper));
    this.#watches.set(unit, stop ?? this.#poll(unit));
  }

  /** It was let go. */
  forget(unit: string): void {
    this.#watches.get(unit)?.();
    this.#watches.delete(unit);
    this.#distrusted.delete(unit);
  }

  close(): void {
    for (const stop of this.#watches.values()) stop();
    this.#watches.clear();
  }

  #gone(unit: string): void {
    this.#watches.get(unit)?.();
    this.#watches.delete(unit);
    this.#onGone(unit);
  }

  #fifo(unit: string, file: string): (() => void) | null {
    if (this.#distrusted.has(unit)) return null;
    const fd = openHeld(file);
    if (fd === null) return null;
    const socket = new Socket({ fd, readable: true, writable: false });
    const ended = (): void => {
      this.#distrusted.add(unit);
      this.#gone(unit);
    };
    socket.on('error', () => undefined); // 'close' follows.
    socket.once('end', ended).resume();
    return () => {
      socket.off('end', ended);
      socket.destroy();
    };
  }

  /** Each look is a reading of three small files by whoever hears the hint. */
  #poll(unit: string): () => void {
    const timer = setTimeout(() => this.#gone(unit), LOOK_AGAIN_MS);
    return () => clearTimeout(timer);
  }
}

/** Opens a FIFO that somebody holds; null for any other, whose end would never be told (fifo(7)). */
function openHeld(file: string): number | null {
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return null; // None could be made there, or its keeper has just removed it.
  }
  try {
    readSync(fd, Buffer.alloc(1)); // 0: nobody holds it. Nobody ever writes.
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EAGAIN') return fd;
  }
  closeSync(fd);
  return null;
}
