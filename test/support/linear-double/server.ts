/**
 * The double of Linear: GraphQL, OAuth and webhooks on loopback, for tests. It says so in every
 * answer (header x-linear-double). Nothing in the product knows of it.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as later } from 'node:timers/promises';
import { DoubleClock } from './clock.ts';
import { isObject } from './content.ts';
import { type Fault, Faults } from './faults.ts';
import { nameOf, readOperation, run } from './graphql.ts';
import { type Call, Journal, type Violation } from './journal.ts';
import { Limits } from './limits.ts';
import { OAuth, type OAuthAnswer } from './oauth.ts';
import {
  errorBody,
  internalError,
  invalid,
  notAuthenticated,
  Refusal,
  rateLimited,
} from './refusals.ts';
import { root } from './resolvers.ts';
import { WebhookSender } from './webhooks.ts';
import { World } from './world.ts';

export interface LinearDoubleOptions {
  /** TCP port on 127.0.0.1; 0 (the default) lets the kernel choose. */
  readonly port?: number;
  readonly clientId?: string;
  readonly clientSecret?: string;
  /** What webhooks are signed with. */
  readonly signingSecret?: string;
  /** The clock runs with the machine's, for a daemon that has no other; else it stands. */
  readonly runs?: boolean;
}

/** A running double. */
export class LinearDouble {
  readonly clock: DoubleClock;
  readonly world: World;
  readonly oauth: OAuth;
  readonly limits: Limits;
  readonly faults = new Faults();
  readonly webhooks: WebhookSender;
  readonly #journal = new Journal();
  readonly #closing = new AbortController();
  readonly #root: ReturnType<typeof root>;
  readonly #server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
    void this.#handle(request, response);
  });

  constructor(options: LinearDoubleOptions) {
    this.clock = new DoubleClock(options.runs ? { runs: true } : {});
    this.world = new World(this.clock);
    this.oauth = new OAuth(
      this.clock,
      options.clientId ?? 'client-of-the-double',
      options.clientSecret ?? 'secret-of-the-double',
    );
    this.limits = new Limits(this.clock);
    this.webhooks = new WebhookSender(
      this.world,
      this.oauth.clientId,
      options.signingSecret ?? 'signing-secret-of-the-double',
    );
    this.#root = root(this.world);
  }

  async listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  /** `http://127.0.0.1:PORT`; GraphQL is at /graphql, OAuth at /oauth/token and /oauth/revoke. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** What was asked, oldest first; with a name only that. */
  calls(name?: string): readonly Call[] {
    return this.#journal.calls.filter((call) => name === undefined || call.name === name);
  }

  /** What no good client sends, oldest first. A test of a good client expects none. */
  violations(): readonly Violation[] {
    return this.#journal.violations;
  }

  /** The first call, of now or later, that is over and passes the test. */
  waitFor(test: (call: Call) => boolean): Promise<Call> {
    return this.#journal.waitFor(test);
  }

  /** Stops listening and ends every connection, hanging ones too. */
  async close(): Promise<void> {
    if (!this.#server.listening) return;
    this.#closing.abort();
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  /** Never rejects. */
  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.setHeader('x-linear-double', 'outlive');
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    try {
      const body = await text(request);
      if (request.method !== 'POST') throw new Refusal405(request.method ?? '', pathname);
      switch (pathname) {
        case '/graphql':
          return await this.#graphql(request, response, body);
        case '/oauth/token':
          return await this.#form('token', request, response, body);
        case '/oauth/revoke':
          return await this.#form('revoke', request, response, body);
        default:
          throw new Refusal405(request.method, pathname);
      }
    } catch (error) {
      if (this.#closing.signal.aborted || response.destroyed) return;
      this.#journal.object(pathname, String(error));
      send(response, 400, { error: String(error) });
    }
  }

  async #graphql(request: IncomingMessage, response: ServerResponse, raw: string): Promise<void> {
    const body = jsonOf(raw);
    const variables = isObject(body) && isObject(body['variables']) ? body['variables'] : {};
    const call = this.#journal.begin(nameOf(body), variables, this.clock.now());
    const fault = this.faults.take(call.name);
    if (await this.#isGivenUp(fault, call, response)) return;
    try {
      await this.#answer(request, response, body, call, fault);
    } catch (error) {
      const refusal = error instanceof Refusal ? error : internalError();
      if (!(error instanceof Refusal)) this.#journal.object(call.name, `broke: ${String(error)}`);
      this.#refuse(response, call, refusal, fault);
    }
    this.#journal.finished(call);
  }

  async #answer(
    request: IncomingMessage,
    response: ServerResponse,
    body: unknown,
    call: Call,
    fault: Fault | null,
  ): Promise<void> {
    if (!/^application\/json\b/.test(request.headers['content-type'] ?? '')) {
      throw invalid('the body must be application/json');
    }
    const operation = readOperation(body);
    if (fault?.kind === 'unauthorized' || !this.#isAuthorized(request)) throw notAuthenticated();
    if (fault?.kind === 'rate_limited') throw rateLimited(fault.status);
    const isPaid = this.limits.spend(operation.complexity);
    const headers = this.limits.headers(operation.complexity);
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    if (!isPaid) throw rateLimited(this.limits.refusalStatus);
    if (fault?.kind === 'unsuccessful') {
      call.status = 200;
      return send(response, 200, { data: { [call.name]: { success: false, lastSyncId: 0 } } });
    }
    const answer = await run(operation, this.#root);
    if (answer.refusal) this.#note(call, answer.refusal);
    else call.effective = true;
    if (fault?.kind === 'lost') {
      response.destroy();
      return;
    }
    call.status = answer.status;
    send(response, answer.status, answer.body);
  }

  #isAuthorized(request: IncomingMessage): boolean {
    const [scheme, token, more] = (request.headers.authorization ?? '').split(' ');
    return scheme === 'Bearer' && more === undefined && this.oauth.isGood(token ?? '');
  }

  #refuse(response: ServerResponse, call: Call, refusal: Refusal, fault: Fault | null): void {
    this.#note(call, refusal);
    call.status = refusal.status;
    if (fault?.kind === 'rate_limited' && fault.retryAfter !== undefined) {
      response.setHeader('retry-after', String(fault.retryAfter));
    }
    send(response, refusal.status, errorBody(refusal));
  }

  #note(call: Call, refusal: Refusal): void {
    call.code = refusal.extensions.code;
    if (!refusal.violation) return;
    const { userPresentableMessage: why } = refusal.extensions;
    this.#journal.object(call.name, why ?? refusal.message);
  }

  /** Faults that leave nothing to do, or only later. True when there is no more to do. */
  async #isGivenUp(fault: Fault | null, call: Call, response: ServerResponse): Promise<boolean> {
    switch (fault?.kind) {
      case 'late':
        await later(fault.ms, undefined, { signal: this.#closing.signal });
        return false;
      case 'hang':
        break;
      case 'cut':
        response.destroy();
        break;
      case 'status':
        call.status = fault.status;
        if (fault.location !== undefined) response.setHeader('location', fault.location);
        response.writeHead(fault.status, { 'content-type': 'text/html' });
        response.end(fault.body ?? '<html><body>The service is not there</body></html>');
        break;
      default:
        return false;
    }
    this.#journal.finished(call);
    return true;
  }

  async #form(
    name: 'token' | 'revoke',
    request: IncomingMessage,
    response: ServerResponse,
    body: string,
  ): Promise<void> {
    const form = new URLSearchParams(body);
    const grant = form.get('grant_type') ?? '';
    const call = this.#journal.begin(name, { grant, scope: form.get('scope') }, this.clock.now());
    const fault = this.faults.take(name);
    if (await this.#isGivenUp(fault, call, response)) return;
    if (fault?.kind === 'rate_limited') {
      this.#refuse(response, call, rateLimited(fault.status), fault);
      return this.#journal.finished(call);
    }
    if (!/^application\/x-www-form-urlencoded\b/.test(request.headers['content-type'] ?? '')) {
      throw new Error('the body must be a form');
    }
    const answer: OAuthAnswer = name === 'token' ? this.oauth.token(form) : this.oauth.revoke(form);
    call.code = typeof answer.body['error'] === 'string' ? answer.body['error'] : null;
    call.effective = answer.status === 200;
    if (fault?.kind === 'lost') response.destroy();
    else {
      call.status = answer.status;
      send(response, answer.status, answer.body);
    }
    this.#journal.finished(call);
  }
}

class Refusal405 extends Error {
  constructor(method: string, pathname: string) {
    super(`there is no ${method} ${pathname}`);
  }
}

function jsonOf(raw: string): unknown {
  try {
    return JSON.parse(raw) as unknown;
  } catch {
    return null;
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' });
  response.end(JSON.stringify(body));
}

/** Starts a double of Linear on loopback. */
export async function startLinearDouble(options: LinearDoubleOptions = {}): Promise<LinearDouble> {
  const double = new LinearDouble(options);
  await double.listen(options.port ?? 0);
  return double;
}
