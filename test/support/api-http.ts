/** A plain HTTP client for tests: sends exactly what it is told, shows exactly what came. */
import { once } from 'node:events';
import http from 'node:http';
import { expect } from 'vitest';
import { type Problem, problemSchema, type WorkUnitView } from '../../src/api/schemas.ts';
import { atTheEnd } from './api-rig.ts';

export type Target =
  | { readonly socketPath: string }
  | { readonly port: number; readonly token?: string };

export interface Call {
  readonly method?: string;
  readonly path: string;
  readonly headers?: http.OutgoingHttpHeaders;
  /** Sent as it is; an object goes as JSON with its content type. */
  readonly body?: string | Buffer | object;
}

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
}

function requestOf(target: Target, { method, path, headers, body }: Call): http.ClientRequest {
  const isText = body === undefined || typeof body === 'string' || Buffer.isBuffer(body);
  const payload = isText ? body : JSON.stringify(body);
  const token = 'port' in target ? target.token : undefined;
  const request = http.request({
    ...('port' in target
      ? { host: '127.0.0.1', port: target.port }
      : { socketPath: target.socketPath }),
    agent: false,
    path,
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...(isText ? {} : { 'content-type': 'application/json' }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...headers,
    },
  });
  request.end(payload);
  return request;
}

/** Sends a call and resolves with the whole answer. */
export async function send(target: Target, call: Call): Promise<Answer> {
  const request = requestOf(target, call);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  // A body that is too large is answered before it is read; the rest of it then fails to go out.
  request.on('error', () => undefined);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

export const json = <Body = WorkUnitView>(answer: Answer): Body => JSON.parse(answer.text) as Body;

/** The problem document of a refusal: typed as such, its status the answer's. */
export function problem(answer: Answer): Problem {
  expect(answer.headers['content-type']).toMatch(/^application\/problem\+json\b/);
  const parsed = problemSchema.parse(JSON.parse(answer.text));
  expect(parsed.status).toBe(answer.status);
  expect(parsed.type).toBe(`urn:outlive:error:${parsed.code}`);
  return parsed;
}

/** `code` and the paths of the bad fields, sorted: what most refusals are about. */
export function refused(answer: Answer): { status: number; code: string; paths: string[] } {
  const { status, code, errors } = problem(answer);
  return { status, code, paths: errors.map(({ path }) => path).sort() };
}

/** The least that makes a work unit, with an own key so that nothing is replayed by chance. */
export const COMMAND = { runnerId: 'command', ownerId: 'ada', argv: ['true'], cwd: '/' } as const;
export const PI = { runnerId: 'pi', ownerId: 'ada', prompt: 'hello', cwd: '/' } as const;

export const post = (
  target: Target,
  body: string | Buffer | object,
  headers: http.OutgoingHttpHeaders = {},
): Promise<Answer> =>
  send(target, {
    path: '/work-units',
    body,
    headers: {
      ...(typeof body === 'string' || Buffer.isBuffer(body)
        ? { 'content-type': 'application/json' }
        : {}),
      ...headers,
    },
  });

/** Makes a work unit and returns it. */
export async function start(target: Target, known: object = {}): Promise<WorkUnitView> {
  const answer = await post(target, { ...COMMAND, ...known });
  expect(answer.status, answer.text).toBe(201);
  return json(answer);
}

export interface StreamEvent {
  readonly id: string;
  readonly event: string;
  readonly data: { readonly seq: number; readonly type: string; readonly [key: string]: unknown };
}

export interface Stream {
  readonly response: http.IncomingMessage;
  /** The next `count` events; rejects when the stream ends before. */
  next(count: number): Promise<StreamEvent[]>;
  /** All events until the server ends the stream. */
  rest(): Promise<StreamEvent[]>;
  /** Leaves without a word. */
  drop(): void;
}

function parseFrame(frame: string): StreamEvent | null {
  const fields = new Map<string, string>();
  for (const line of frame.split('\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1).replace(/^ /, ''));
  }
  const data = fields.get('data');
  if (data === undefined) return null; // A comment.
  return {
    id: fields.get('id') ?? '',
    event: fields.get('event') ?? '',
    data: JSON.parse(data) as StreamEvent['data'],
  };
}

async function* eventsOf(response: http.IncomingMessage): AsyncGenerator<StreamEvent, void> {
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of response) {
    text += decoder.decode(chunk as Buffer, { stream: true });
    const frames = text.split('\n\n');
    text = frames.pop() ?? '';
    for (const frame of frames) {
      const event = parseFrame(frame);
      if (event) yield event;
    }
  }
}

/** Opens a stream of events. Its head is there when this resolves. */
export async function openStream(
  target: Target,
  id: string,
  options: { query?: string; headers?: http.OutgoingHttpHeaders } = {},
): Promise<Stream> {
  const request = requestOf(target, {
    path: `/work-units/${id}/events${options.query ?? ''}`,
    headers: { accept: 'text/event-stream', ...options.headers },
  });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  expect(response.statusCode).toBe(200);
  request.on('error', () => undefined);
  atTheEnd(() => {
    request.destroy();
  });
  const events = eventsOf(response);
  return {
    response,
    next: async (count) => {
      const taken: StreamEvent[] = [];
      while (taken.length < count) {
        const event = await events.next();
        if (event.done) throw new Error(`the stream ended after ${taken.length} of ${count}`);
        taken.push(event.value);
      }
      return taken;
    },
    rest: async () => {
      const taken: StreamEvent[] = [];
      for await (const event of events) taken.push(event);
      return taken;
    },
    drop: () => {
      request.destroy();
    },
  };
}
