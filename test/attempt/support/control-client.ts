/** A client of the control socket that waits for messages without polling. */
import { connect, type Socket } from 'node:net';
import type { ControlFromWrapper } from '../../../src/domain/attempt-files.ts';

export class ControlClient {
  readonly #socket: Socket;
  readonly messages: ControlFromWrapper[] = [];
  #rest = '';
  #arrived = Promise.withResolvers<void>();

  constructor(path: string) {
    this.#socket = connect(path);
    this.#socket.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    this.#socket.on('error', () => {});
    this.closed = new Promise((resolve) => {
      this.#socket.once('close', () => {
        resolve();
        this.#arrived.resolve();
      });
    });
  }

  /** Settles when the connection has ended, whoever ended it. */
  readonly closed: Promise<void>;

  send(message: unknown): void {
    this.#socket.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`);
  }

  /** Reads nothing any more. */
  pause(): void {
    this.#socket.pause();
  }

  close(): void {
    this.#socket.destroy();
  }

  /** The message at that place; rejects when the connection ends before. */
  async at(index: number): Promise<ControlFromWrapper> {
    for (;;) {
      const message = this.messages[index];
      if (message !== undefined) return message;
      if (this.#socket.closed) throw new Error(`closed after ${JSON.stringify(this.messages)}`);
      this.#arrived = Promise.withResolvers<void>();
      await this.#arrived.promise;
    }
  }

  #take(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    this.messages.push(...lines.map((line): ControlFromWrapper => JSON.parse(line)));
    this.#arrived.resolve();
  }
}
