/** A bus for unit tests: speaks the protocol over a unix socket and does as it is told. */
import { once } from 'node:events';
import { createRequire } from 'node:module';
import net from 'node:net';

interface RawMessage {
  readonly type: number;
  readonly serial: number;
  readonly member: string;
  readonly body?: readonly unknown[];
}

interface Codec {
  marshall(message: Record<string, unknown>): [Buffer];
  unmarshalMessages(
    stream: net.Socket,
    onMessage: (message: RawMessage) => void,
    options: object,
  ): void;
}

const codec = createRequire(import.meta.url)('dbus-next/lib/message.js') as Codec;

const TYPE = { methodReturn: 2, error: 3, signal: 4 } as const;

/** One method call that reached the bus. */
export class Call {
  readonly member: string;
  readonly body: readonly unknown[];
  readonly #client: Client;
  readonly #serial: number;

  constructor(client: Client, message: RawMessage) {
    this.#client = client;
    this.#serial = message.serial;
    this.member = message.member;
    this.body = message.body ?? [];
  }

  reply(signature?: string, ...body: readonly unknown[]): void {
    this.#client.send({ type: TYPE.methodReturn, replySerial: this.#serial, signature, body });
  }

  refuse(errorName: string, text: string): void {
    const head = { type: TYPE.error, replySerial: this.#serial, errorName };
    this.#client.send({ ...head, signature: 's', body: [text] });
  }
}

export class Client {
  readonly #socket: net.Socket;
  #serial = 0;

  constructor(socket: net.Socket) {
    this.#socket = socket;
  }

  send(message: Record<string, unknown>): void {
    const head = { serial: ++this.#serial, sender: 'org.freedesktop.DBus' };
    this.#socket.write(codec.marshall({ ...head, ...message })[0]);
  }

  signal(path: string, iface: string, member: string, signature: string, ...body: unknown[]): void {
    this.send({ type: TYPE.signal, path, interface: iface, member, signature, body });
  }

  cut(): void {
    this.#socket.destroy();
  }

  /** Resolves once the connection is over, whoever ended it. */
  async gone(): Promise<void> {
    if (!this.#socket.closed) await once(this.#socket, 'close');
    await new Promise(setImmediate);
  }
}

export class FakeBus {
  readonly #server: net.Server;
  readonly clients: Client[] = [];
  /** Members called so far, in order. */
  readonly called: string[] = [];
  #onCall: (call: Call) => void = () => {};
  readonly #waiting = new Set<() => void>();

  private constructor() {
    this.#server = net.createServer((socket) => this.#join(socket));
  }

  static async listen(path: string, onCall: (call: Call) => void): Promise<FakeBus> {
    const bus = new FakeBus();
    bus.#onCall = onCall;
    bus.#server.listen(path);
    await once(bus.#server, 'listening');
    return bus;
  }

  /** Resolves once as many calls of this member have come. */
  async got(member: string, count: number): Promise<void> {
    while (this.called.filter((name) => name === member).length < count) {
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
  }

  get last(): Client {
    const client = this.clients.at(-1);
    if (!client) throw new Error('nobody has connected');
    return client;
  }

  async close(): Promise<void> {
    for (const client of this.clients) client.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #join(socket: net.Socket): void {
    const client = new Client(socket);
    this.clients.push(client);
    socket.on('error', () => {});
    let said = Buffer.alloc(0);
    const greet = (chunk: Buffer): void => {
      said = Buffer.concat([said, chunk]);
      if (said.includes('AUTH') && said.includes('\r\n') && !said.includes('BEGIN')) {
        socket.write('OK 1234deadbeef\r\n');
      }
      const begun = said.indexOf('BEGIN\r\n');
      if (begun < 0) return;
      socket.off('data', greet);
      socket.pause();
      const rest = said.subarray(begun + 7);
      if (rest.length > 0) socket.unshift(rest);
      codec.unmarshalMessages(socket, (message) => this.#receive(client, message), {});
    };
    socket.on('data', greet);
  }

  #receive(client: Client, message: RawMessage): void {
    const call = new Call(client, message);
    this.called.push(call.member);
    this.#onCall(call);
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}
