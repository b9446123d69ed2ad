/** Stands before an API's socket: writes down what is asked, and goes away when told. */
import { once } from 'node:events';
import http from 'node:http';
import path from 'node:path';
import { atTheEnd, temporaryDirectory } from './api-rig.ts';

export class RecordingProxy {
  readonly socketPath = path.join(temporaryDirectory(), 'proxy.sock');
  /** `GET /events?afterPosition=3`, in the order they came. */
  readonly requests: string[] = [];
  readonly #target: string;
  #server: http.Server | null = null;

  private constructor(target: string) {
    this.#target = target;
  }

  static async before(target: string): Promise<RecordingProxy> {
    const proxy = new RecordingProxy(target);
    atTheEnd(() => proxy.cut());
    await proxy.restore();
    return proxy;
  }

  /** Every connection is lost, and nobody answers. */
  async cut(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    if (!server) return;
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }

  async restore(): Promise<void> {
    const server = http.createServer((request, response) => this.#forward(request, response));
    server.listen(this.socketPath);
    await once(server, 'listening');
    this.#server = server;
  }

  #forward(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { method = '', url = '', headers } = request;
    this.requests.push(`${method} ${url}`);
    const onward = http.request({
      socketPath: this.#target,
      method,
      path: url,
      headers,
      agent: false,
    });
    onward.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  }
}
