/**
 * Attempts that sleep, and spools that this process writes for them: so it is known to the
 * microsecond when a line was there. The wrapper's own lines come before and after.
 */
import { type FileHandle, open } from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import { ATTEMPT_FILES } from '../../src/domain/attempt-files.ts';
import { monotonicMs } from './clock.ts';
import type { Workshop } from './workshop.ts';

/** A number no line of the wrapper comes near. */
const FIRST_LINE = 1_000_000;

/** One sleeping attempt and the end of its spool. */
export class Feed {
  readonly workUnitId: string;
  readonly #spool: FileHandle;
  #line = FIRST_LINE;

  private constructor(workUnitId: string, spool: FileHandle) {
    this.workUnitId = workUnitId;
    this.#spool = spool;
  }

  static async start({ rig }: Workshop): Promise<Feed> {
    const { id } = await rig.submit({ argv: ['/bin/sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const attempt = (await rig.client.getWorkUnit(id)).attempts[0];
    const directory = path.join(rig.config.directories.attempts, id, attempt?.id ?? '');
    return new Feed(id, await open(path.join(directory, ATTEMPT_FILES.spool), 'a'));
  }

  /** Writes one line of about 200 bytes that says when it was written. */
  async write(): Promise<void> {
    const n = this.#line++;
    const text = 'ok 1 - it works as it did before\n'.repeat(3);
    const data = { toolCallId: `call_${n}`, text, sentAt: monotonicMs() };
    const ts = new Date().toISOString();
    const line = JSON.stringify({ v: 1, n, ts, type: 'tool.update', data });
    await this.#spool.write(`${line}\n`);
  }

  async close(): Promise<void> {
    await this.#spool.close();
  }
}

const SENT_AT = /"sentAt":([\d.]+)/g;

/** A reader of a stream that only looks how old each line is. Cheap, for there may be hundreds. */
export class AgeReader {
  /** Milliseconds from the line being written to its frame being here. */
  readonly ages: number[] = [];
  readonly #request: http.ClientRequest;
  #rest = '';

  private constructor(request: http.ClientRequest) {
    this.#request = request;
  }

  static async open(socketPath: string, streamPath: string): Promise<AgeReader> {
    const headers = { accept: 'text/event-stream' };
    const request = http.request({ socketPath, path: streamPath, headers, agent: false });
    const reader = new AgeReader(request);
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
    request.once('response', resolve).once('error', reject).end();
    const response = await promise;
    request.on('error', () => undefined);
    response.setEncoding('utf8').on('data', (text: string) => reader.#take(text));
    return reader;
  }

  #take(text: string): void {
    const now = monotonicMs();
    const whole = this.#rest + text;
    const end = whole.lastIndexOf('\n\n');
    this.#rest = whole.slice(end + 1);
    for (const [, sentAt] of whole.slice(0, end + 1).matchAll(SENT_AT)) {
      this.ages.push(now - Number(sentAt));
    }
  }

  close(): void {
    this.#request.destroy();
  }
}

/** Writes `perSecond` lines for so long, spread evenly over the feeds. */
export async function feedFor(
  feeds: readonly Feed[],
  perSecond: number,
  seconds: number,
): Promise<number> {
  const total = perSecond * seconds;
  const began = monotonicMs();
  let written = 0;
  while (written < total) {
    const due = Math.min(total, Math.floor(((monotonicMs() - began) * perSecond) / 1_000));
    const writes: Promise<void>[] = [];
    for (; written < due; written++) {
      const feed = feeds[written % feeds.length];
      if (feed) writes.push(feed.write());
    }
    await Promise.all(writes);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return written;
}
