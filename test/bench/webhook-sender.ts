/**
 * Sends webhooks from a thread of its own, over connections that stay open: what is measured
 * is the server. Everything is signed and written out before the clock starts.
 */
import { once } from 'node:events';
import net from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
import { createdBody, headersOf } from '../support/linear-webhooks.ts';
import { monotonicMs } from './clock.ts';

export interface Sending {
  readonly port: number;
  readonly connections: number;
  readonly count: number;
  /** A second, whatever the server does; null: as soon as the last one of the connection is answered. */
  readonly rate: number | null;
}

export interface Sent {
  readonly ms: number;
  /** From the moment each was due to its answer, milliseconds. */
  readonly ages: readonly number[];
}

let made = 0;

function request(): Buffer {
  made += 1;
  const body = JSON.stringify(createdBody(`${process.pid}-${performance.now()}-${made}`));
  const headers = Object.entries({ host: 'bench', ...headersOf(body) });
  const head = headers.map(([name, value]) => `${name}: ${String(value)}\r\n`).join('');
  const length = `content-length: ${Buffer.byteLength(body)}`;
  return Buffer.from(`POST /linear/webhook HTTP/1.1\r\n${head}${length}\r\n\r\n${body}`);
}

/** One connection: answers come in the order of requests. */
class Line {
  readonly #socket: net.Socket;
  readonly #waiting: ((status: string) => void)[] = [];

  private constructor(socket: net.Socket) {
    this.#socket = socket;
    let text = '';
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
      for (let end = text.indexOf('{"ok":true}'); end !== -1; end = text.indexOf('{"ok":true}')) {
        this.#waiting.shift()?.(text.slice(0, 12));
        text = text.slice(end + '{"ok":true}'.length);
      }
      if (text.length > 4_096) throw new Error(`not answered 200: ${text.slice(0, 300)}`);
    });
  }

  static async open(port: number): Promise<Line> {
    const socket = net.connect(port, '127.0.0.1');
    socket.setNoDelay(true);
    await once(socket, 'connect');
    return new Line(socket);
  }

  async send(bytes: Buffer): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<string>();
    this.#waiting.push(resolve);
    this.#socket.write(bytes);
    const status = await promise;
    if (status !== 'HTTP/1.1 200') throw new Error(status);
  }

  close(): void {
    this.#socket.destroy();
  }
}

async function asSoonAsAnswered(lines: readonly Line[], requests: Buffer[]): Promise<Sent> {
  const ages: number[] = [];
  const began = monotonicMs();
  const lane = async (line: Line): Promise<void> => {
    for (let next = requests.pop(); next; next = requests.pop()) {
      const due = monotonicMs();
      await line.send(next);
      ages.push(monotonicMs() - due);
    }
  };
  await Promise.all(lines.map(lane));
  return { ms: monotonicMs() - began, ages };
}

async function atARate(lines: readonly Line[], requests: Buffer[], rate: number): Promise<Sent> {
  const ages: number[] = [];
  const answers: Promise<void>[] = [];
  const began = monotonicMs();
  const sendOne = async (index: number): Promise<void> => {
    const due = began + (index * 1_000) / rate;
    await lines[index % lines.length]?.send(requests[index] ?? Buffer.alloc(0));
    ages.push(monotonicMs() - due);
  };
  for (let sent = 0; sent < requests.length; ) {
    const dueByNow = Math.min(requests.length, ((monotonicMs() - began) * rate) / 1_000);
    for (; sent < dueByNow; sent++) answers.push(sendOne(sent));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await Promise.all(answers);
  return { ms: monotonicMs() - began, ages };
}

async function run({ port, connections, count, rate }: Sending): Promise<Sent> {
  const requests = Array.from({ length: count }, request);
  const lines = await Promise.all(Array.from({ length: connections }, () => Line.open(port)));
  const sent =
    rate === null ? await asSoonAsAnswered(lines, requests) : await atARate(lines, requests, rate);
  for (const line of lines) line.close();
  return sent;
}

parentPort?.postMessage(await run(workerData as Sending));
