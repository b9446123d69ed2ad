/**
 * The scripted model: a real OpenAI-compatible streaming server on loopback that
 * stands in for a paid provider in tests and in the demonstration. It says so in
 * every answer (header x-scripted-model). Nothing in the product knows of it.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { lastUserText, Refusal, readChatRequest } from './chat-request.ts';
import { FaultCounter, nextTurn } from './conversation.ts';
import { Journal, type RequestRecord, type Violation } from './journal.ts';
import { errorBody, play } from './player.ts';

/** What startScriptedModel takes. */
export interface ScriptedModelOptions {
  /** TCP port on 127.0.0.1; 0 (the default) lets the kernel choose. */
  readonly port?: number;
  /** Key that clients must send as a bearer token; without it any is taken. */
  readonly apiKey?: string;
  /** Names of the models it plays, by default `scripted`. */
  readonly models?: readonly string[];
}

/** A running scripted model. */
export interface ScriptedModel {
  /** What a client is configured with: `http://127.0.0.1:PORT/v1`. */
  readonly baseUrl: string;
  readonly port: number;
  /** The last requests, oldest first. */
  requests(): RequestRecord[];
  /** The last objections to what clients sent, oldest first. */
  violations(): Violation[];
  /** The first request, of now or later, that passes the test. */
  waitFor(test: (record: RequestRecord) => boolean): Promise<RequestRecord>;
  /** Stops listening and ends every connection, hanging ones too. */
  close(): Promise<void>;
}

interface Context {
  readonly apiKey: string | undefined;
  readonly models: readonly string[];
  readonly journal: Journal;
  readonly faults: FaultCounter;
  /** Aborted by close(). */
  readonly closing: AbortSignal;
}

// A client may use a connection again at the very moment the server gives it up;
// Pi would then report "Connection error". So the server does not give up.
/** Of each text that the journal keeps. */
const TEXT_LENGTH = 2_000;
const KEEP_ALIVE_MS = 600_000;

/** Starts a scripted model on loopback. */
export async function startScriptedModel(
  options: ScriptedModelOptions = {},
): Promise<ScriptedModel> {
  const closing = new AbortController();
  const context: Context = {
    apiKey: options.apiKey,
    models: options.models ?? ['scripted'],
    journal: new Journal(),
    faults: new FaultCounter(),
    closing: closing.signal,
  };
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, (request, response) => {
    void handle(context, request, response);
  });
  server.listen(options.port ?? 0, '127.0.0.1');
  await once(server, 'listening');
  const port = portOf(server);
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    port,
    requests: () => context.journal.requests(),
    violations: () => context.journal.violations(),
    waitFor: (test) => context.journal.waitFor(test),
    close: async () => {
      if (!server.listening) return;
      closing.abort();
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Never rejects: an error of ours becomes a 500 that says so. */
async function handle(
  context: Context,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  response.setHeader('x-scripted-model', 'outlive');
  try {
    await route(context, request, response);
  } catch (error) {
    const refusal =
      error instanceof Refusal ? error : new Refusal(`scripted model broke: ${String(error)}`, 500);
    context.journal.object(refusal.status, refusal.message);
    if (response.headersSent) response.destroy();
    else sendError(response, refusal);
  }
}

async function route(
  context: Context,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { journal } = context;
  const asked = `${request.method} ${new URL(request.url ?? '/', 'http://localhost').pathname}`;
  switch (asked) {
    case 'GET /':
      return sendText(
        response,
        'A scripted stand-in for a model provider, for tests of outlive. No model is behind it.\n',
      );
    case 'GET /_requests':
      return sendJson(response, journal.requests());
    case 'GET /_violations':
      return sendJson(response, journal.violations());
    case 'POST /_reset':
      journal.clear();
      context.faults.clear();
      return sendJson(response, {});
    case 'GET /v1/models':
      checkKey(context, request);
      return sendJson(response, modelList(context.models));
    case 'POST /v1/chat/completions':
      return chat(context, request, response);
    default:
      throw new Refusal(
        `${asked} is not offered, only POST /v1/chat/completions and GET /v1/models`,
      );
  }
}

async function chat(
  context: Context,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { journal } = context;
  const session = headerOf(request, 'x-session-affinity');
  const record = journal.begin(session);
  const note = (change: Partial<RequestRecord>): void => journal.update(record, change);
  const gone = watchConnection(context, response, record);
  try {
    const body = await text(request);
    checkKey(context, request);
    const asked = readChatRequest(body, context.models);
    note({
      model: asked.model,
      roles: asked.messages.map((message) => message.role),
      messages: asked.messages.length,
      lastUserText: lastUserText(asked.messages),
      texts: asked.messages
        .filter(({ role }) => role !== 'system' && role !== 'developer')
        .map(({ text }) => text.slice(0, TEXT_LENGTH)),
    });
    const turn = nextTurn(asked, session, context.faults);
    note({ turn: turn.line });
    await play(turn, { request: asked, response, gone, note });
  } catch (error) {
    // The client left, perhaps in the middle of its request: nobody to answer, nothing to object to.
    if (gone.aborted || !request.complete) return;
    if (error instanceof Refusal) note({ status: error.status, ended: 'refused' });
    throw error;
  }
}

/** Notes how the connection ends; the signal aborts when it is gone. */
function watchConnection(
  context: Context,
  response: ServerResponse,
  record: RequestRecord,
): AbortSignal {
  const gone = new AbortController();
  response.once('close', () => {
    gone.abort();
    if (record.ended !== 'open') return;
    const early = context.closing.aborted ? 'server-closed' : 'client-left';
    context.journal.update(record, { ended: response.writableFinished ? 'answered' : early });
  });
  return gone.signal;
}

function checkKey(context: Context, request: IncomingMessage): void {
  if (context.apiKey === undefined) return;
  if (headerOf(request, 'authorization') === `Bearer ${context.apiKey}`) return;
  throw new Refusal('Incorrect API key provided', 401);
}

function modelList(models: readonly string[]): unknown {
  const data = models.map((id) => ({ id, object: 'model', created: 0, owned_by: 'outlive' }));
  return { object: 'list', data };
}

function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(value)}\n`);
}

function sendText(response: ServerResponse, body: string): void {
  response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(body);
}

function sendError(response: ServerResponse, refusal: Refusal): void {
  response.writeHead(refusal.status, { 'content-type': 'application/json' });
  response.end(errorBody(refusal.status, refusal.message));
}

function headerOf(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return typeof value === 'string' ? value : '';
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('not listening on TCP');
  return address.port;
}
