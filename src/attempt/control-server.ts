/**
 * The control socket: heartbeats out, `ping`, `abort` and `look` in, one JSON object per
 * line. Clients come and go (a daemon restarts); none of them can hurt the run but
 * by aborting it. Decisions never come this way, only the hint that there may be some.
 */
import { rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { CONTROL_VERSION, type ControlFromWrapper } from '../domain/attempt-files.ts';
import { parseCommand } from './control-command.ts';
import type { AbortReason } from './event-data.ts';
import { errorCode, makeDirectory } from './files.ts';
import { LineSplitter } from './jsonl.ts';

/** A unix socket's path holds at most 107 bytes and a NUL (unix(7)). */
const MAX_PATH_BYTES = 107;
const MAX_CLIENTS = 16;
const MAX_COMMAND_BYTES = 64 * 1024;
/** A client that leaves this much unread is dropped; it may come again and reads the spool anyway. */
const MAX_UNREAD_BYTES = 64 * 1024;

type Hello = ControlFromWrapper & { type: 'hello' };
type Heartbeat = ControlFromWrapper & { type: 'heartbeat' };

export interface ControlOptions {
  readonly socket: string;
  readonly heartbeatIntervalMs: number;
  readonly hello: () => Hello;
  readonly heartbeat: () => Heartbeat;
  readonly onAbort: (reason: AbortReason, graceMs: number) => void;
  readonly onLook: () => void;
  /** Why nobody can connect: the run goes on without a control socket. */
  readonly onUnavailable: (why: string) => void;
}

export class ControlServer {
  readonly #options: ControlOptions;
  readonly #clients = new Set<Socket>();
  #server: Server | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ControlOptions) {
    this.#options = options;
    try {
      this.#listen(options.socket);
    } catch (error) {
      options.onUnavailable(errorCode(error));
    }
  }

  /** Ends all connections; what was said before still arrives. */
  close(): void {
    clearInterval(this.#timer);
    this.#server?.close();
    for (const client of this.#clients) client.end();
  }

  #listen(socket: string): void {
    if (Buffer.byteLength(socket) > MAX_PATH_BYTES) {
      throw new Error(`the path of the socket is longer than ${MAX_PATH_BYTES} bytes: ${socket}`);
    }
    makeDirectory(path.dirname(socket));
    // Only one process ever has the claim: a file that is there is nobody's.
    rmSync(socket, { force: true });
    const server = createServer((client) => this.#welcome(client));
    server.on('error', (error) => this.#options.onUnavailable(errorCode(error)));
    // The socket's mode comes from the umask alone; bind(2) happens within listen().
    const umask = process.umask(0o177);
    try {
      server.listen(socket);
    } finally {
      process.umask(umask);
    }
    this.#server = server;
    this.#timer = setInterval(() => this.#beat(), this.#options.heartbeatIntervalMs);
  }

  #beat(): void {
    const heartbeat = this.#options.heartbeat();
    for (const client of this.#clients) this.#send(client, heartbeat);
  }

  #welcome(client: Socket): void {
    client.on('error', () => {});
    if (this.#clients.size >= MAX_CLIENTS) {
      this.#send(client, refusal(null, `more than ${MAX_CLIENTS} connections`));
      client.end();
      return;
    }
    this.#clients.add(client);
    client.once('close', () => this.#clients.delete(client));
    const lines = new LineSplitter(MAX_COMMAND_BYTES);
    client.on('data', (chunk: Buffer) => this.#read(client, lines, chunk));
    this.#send(client, this.#options.hello());
    this.#send(client, this.#options.heartbeat());
  }

  #read(client: Socket, lines: LineSplitter, chunk: Buffer): void {
    try {
      for (const line of lines.push(chunk)) this.#obey(client, line.toString('utf8'));
    } catch (error) {
      this.#send(client, refusal(null, errorCode(error)));
      client.destroySoon();
    }
  }

  #obey(client: Socket, line: string): void {
    const command = parseCommand(line);
    if (command.type === 'bad') {
      this.#send(client, refusal(command.id, command.message));
      return;
    }
    if (command.type === 'abort') this.#options.onAbort(command.reason, command.graceMs);
    if (command.type === 'look') this.#options.onLook();
    this.#send(client, { v: CONTROL_VERSION, type: 'done', id: command.id });
  }

  #send(client: Socket, message: ControlFromWrapper): void {
    if (client.writableLength > MAX_UNREAD_BYTES) client.destroy();
    else if (client.writable) client.write(`${JSON.stringify(message)}\n`);
  }
}

const refusal = (id: string | null, message: string): ControlFromWrapper => ({
  v: CONTROL_VERSION,
  type: 'error',
  id,
  message,
});
