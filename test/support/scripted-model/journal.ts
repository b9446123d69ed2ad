/** What the scripted model was asked and what it objected to, bounded, and watchable without polling. */
import type { Usage } from './conversation.ts';

/** How an exchange ended; `open` until it did. */
type Ending = 'open' | 'answered' | 'refused' | 'cut' | 'client-left' | 'server-closed';

/** One chat completion request. */
export interface RequestRecord {
  /** RFC 3339, UTC. */
  readonly time: string;
  /** Model asked for, empty when the request could not be read. */
  model: string;
  /** What the client calls its conversation (header x-session-affinity), empty if it says nothing. */
  readonly session: string;
  roles: readonly string[];
  /** Number of messages. */
  messages: number;
  lastUserText: string;
  /** What each message says, cut to 2000 characters; system prompts left out. */
  texts: readonly string[];
  /** The script line that was played. */
  turn: string;
  /** HTTP status of the answer, 0 while there is none. */
  status: number;
  /** Token counts reported to the client, null if none were. */
  usage: Usage | null;
  ended: Ending;
}

/** One objection to what a client sent. */
export interface Violation {
  /** RFC 3339, UTC. */
  readonly time: string;
  /** HTTP status it was answered with. */
  readonly status: number;
  readonly message: string;
}

const LIMIT = 1000;

interface Waiter {
  readonly test: (record: RequestRecord) => boolean;
  readonly resolve: (record: RequestRecord) => void;
}

/** The bounded log of requests and violations. */
export class Journal {
  readonly #requests: RequestRecord[] = [];
  readonly #violations: Violation[] = [];
  readonly #waiters = new Set<Waiter>();

  /** Starts the record of a request that has just arrived. */
  begin(session: string): RequestRecord {
    const record: RequestRecord = {
      time: new Date().toISOString(),
      model: '',
      session,
      roles: [],
      messages: 0,
      lastUserText: '',
      texts: [],
      turn: '',
      status: 0,
      usage: null,
      ended: 'open',
    };
    push(this.#requests, record);
    return record;
  }

  /** Changes a record and tells those who wait for such a change. */
  update(record: RequestRecord, change: Partial<RequestRecord>): void {
    Object.assign(record, change);
    for (const waiter of this.#waiters) {
      if (!waiter.test(record)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(structuredClone(record));
    }
  }

  /** Notes an objection. */
  object(status: number, message: string): void {
    push(this.#violations, { time: new Date().toISOString(), status, message });
  }

  /** The first record, of now or later, that passes the test. */
  waitFor(test: (record: RequestRecord) => boolean): Promise<RequestRecord> {
    const found = this.#requests.find(test);
    if (found !== undefined) return Promise.resolve(structuredClone(found));
    return new Promise((resolve) => {
      this.#waiters.add({ test, resolve });
    });
  }

  /** A copy of the requests, oldest first. */
  requests(): RequestRecord[] {
    return structuredClone(this.#requests);
  }

  /** A copy of the violations, oldest first. */
  violations(): Violation[] {
    return structuredClone(this.#violations);
  }

  /** Forgets requests and violations. */
  clear(): void {
    this.#requests.length = 0;
    this.#violations.length = 0;
  }
}

function push<T>(log: T[], entry: T): void {
  log.push(entry);
  if (log.length > LIMIT) log.shift();
}
