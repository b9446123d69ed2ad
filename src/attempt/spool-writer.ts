/**
 * Writes the spool: one line per event, numbered from 1 without gap, each in a
 * single append. A line is whole or absent: what a full disk leaves half-written
 * is cut off again, and then nothing but the last word is tried.
 */
import { closeSync, fsyncSync, ftruncateSync, openSync } from 'node:fs';
import path from 'node:path';
import { ATTEMPT_FILES } from '../domain/attempt-files.ts';
import { boundValue } from './bounded-text.ts';
import type { Emit, EventData } from './event-data.ts';
import { syncDirectory, writeAll } from './files.ts';
import { objectOf, parseJson } from './json.ts';
import type { Redact } from './redact.ts';
import { Reserve } from './reserve.ts';

/** Format version; equal to SPOOL_VERSION of domain/spool.ts, which would load a schema library (a test compares). */
export const WRITTEN_SPOOL_VERSION = 1;

/** Longest line, LF included, bytes. */
export const MAX_LINE_BYTES = 64 * 1024;
const LINE_FRAME_BYTES = 256;

/** What must be on the disk before anything else happens. */
const DURABLE: ReadonlySet<keyof EventData> = new Set([
  'attempt.opened',
  'attempt.told_to_stop',
  'attempt.deadline',
  'approval.requested',
  'runner.finished',
]);

/** A fenced call's start comes before the act, its end before the model hears of it. */
const isDurable = (type: keyof EventData, data: object): boolean =>
  DURABLE.has(type) || ('fenced' in data && data.fenced === true);

export interface SpoolOptions {
  readonly redact: Redact;
  /** Called once, with the first failed write. */
  readonly onBroken: (error: unknown) => void;
}

export class SpoolWriter {
  readonly #fd: number;
  readonly #reserve: Reserve;
  readonly #options: SpoolOptions;
  #lines = 0;
  #bytes = 0;
  /** Bytes of a half-written line that could not be cut off yet. */
  #torn = 0;
  #broken = false;

  /** Creates the spool; it must not exist. */
  constructor(file: string, options: SpoolOptions) {
    this.#options = options;
    this.#fd = openSync(file, 'ax', 0o600);
    this.#reserve = new Reserve(path.join(path.dirname(file), ATTEMPT_FILES.reserve));
    syncDirectory(path.dirname(file));
  }

  /** Length of the spool, whole lines only. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Appends one event; nothing, and false, after a failed write, of which onBroken was told. */
  readonly append: Emit = (type, data) => {
    if (this.#broken) return false;
    try {
      this.#write(type, data);
    } catch (error) {
      this.#broken = true;
      this.#options.onBroken(error);
    }
    return !this.#broken;
  };

  /** Appends the last word, also on a disk that is full: the reserve makes room. False when it failed. */
  finish(word: EventData['runner.finished']): boolean {
    try {
      if (this.#tryWord(word)) return true;
      this.#reserve.release();
      return this.#tryWord(word);
    } finally {
      this.#reserve.release();
      closeSync(this.#fd);
    }
  }

  #tryWord(word: EventData['runner.finished']): boolean {
    try {
      this.#write('runner.finished', word);
      return true;
    } catch (error) {
      if (!this.#broken) this.#options.onBroken(error);
      this.#broken = true;
      return false;
    }
  }

  #write<Type extends keyof EventData>(type: Type, data: EventData[Type]): void {
    this.#cutTorn();
    const line = this.#line(type, data);
    try {
      writeAll(this.#fd, line, (count) => {
        this.#torn += count;
      });
    } catch (error) {
      this.#cutTorn();
      throw error;
    }
    this.#torn = 0;
    this.#bytes += line.length;
    this.#lines += 1;
    if (isDurable(type, data)) fsyncSync(this.#fd);
  }

  #cutTorn(): void {
    if (this.#torn === 0) return;
    ftruncateSync(this.#fd, this.#bytes);
    this.#torn = 0;
  }

  #line(type: keyof EventData, data: unknown): Buffer {
    const json = this.#options.redact(JSON.stringify(data));
    const line = this.#frame(type, json);
    if (line.length <= MAX_LINE_BYTES) return line;
    const bounded = boundValue(objectOf(parseJson(json)), MAX_LINE_BYTES - LINE_FRAME_BYTES);
    return this.#frame(
      type,
      JSON.stringify(typeof bounded === 'string' ? { cut: bounded } : bounded),
    );
  }

  #frame(type: keyof EventData, data: string): Buffer {
    const head = JSON.stringify({
      v: WRITTEN_SPOOL_VERSION,
      n: this.#lines + 1,
      ts: new Date().toISOString(),
      type,
    });
    return Buffer.from(`${head.slice(0, -1)},"data":${data}}\n`);
  }
}
