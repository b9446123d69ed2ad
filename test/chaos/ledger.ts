/**
 * What a round did and was answered, one JSON line each, written before the act and after
 * the answer: so that whoever checks the round knows it all, also after a power cut.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';

export type Act = 'cancel' | 'retry';

export type Entry =
  | { readonly what: 'submit'; readonly key: string }
  | { readonly what: 'accepted'; readonly key: string; readonly id: string }
  | { readonly what: 'refused'; readonly key: string; readonly code: string }
  | { readonly what: 'asked'; readonly key: string; readonly act: Act }
  | {
      readonly what: 'answered';
      readonly key: string;
      readonly act: Act;
      /** Status of the work unit in the answer; null when it was refused. */
      readonly status: string | null;
      readonly code: string | null;
    }
  /** About to strike: `keys` may end otherwise than by themselves, as one of `allows`. */
  | {
      readonly what: 'fault';
      readonly name: string;
      readonly keys: readonly string[] | 'all';
      readonly allows: readonly string[];
    }
  /** A fault found nothing to strike at. */
  | { readonly what: 'missed'; readonly name: string; readonly why: string }
  /** What was in these files is no longer what was written. */
  | { readonly what: 'damaged'; readonly file: 'store' }
  | { readonly what: 'damaged'; readonly file: 'spool'; readonly attempt: string }
  | { readonly what: 'daemon'; readonly pid: number; readonly armed: string | null }
  | {
      readonly what: 'daemon_ended';
      readonly pid: number;
      readonly how: string;
      readonly wanted: boolean;
      /** Its last line on stderr, when it ended by itself. */
      readonly said: string | null;
    }
  | { readonly what: 'point'; readonly name: string }
  | { readonly what: 'note'; readonly text: string };

/** An entry as it is stored: with milliseconds since the round began. */
export type Stamped = Entry & { readonly ms: number };

export class Ledger {
  readonly entries: Stamped[] = [];
  readonly #file: string;
  readonly #began: number;

  /** Goes on with a ledger that is there. */
  constructor(file: string, now: () => number = Date.now) {
    this.#file = file;
    if (existsSync(file)) {
      // The last line may be half of one: the power was cut.
      for (const line of readFileSync(file, 'utf8').split('\n').slice(0, -1)) {
        this.entries.push(JSON.parse(line) as Stamped);
      }
    }
    this.#began = now() - (this.entries.at(-1)?.ms ?? 0);
  }

  write(entry: Entry): void {
    const stamped: Stamped = { ...entry, ms: Date.now() - this.#began };
    this.entries.push(stamped);
    appendFileSync(this.#file, `${JSON.stringify(stamped)}\n`);
  }

  of<What extends Entry['what']>(what: What): Extract<Stamped, { what: What }>[] {
    return this.entries.filter(
      (entry): entry is Extract<Stamped, { what: What }> => entry.what === what,
    );
  }

  idOf(key: string): string | null {
    return this.of('accepted').find((entry) => entry.key === key)?.id ?? null;
  }
}
