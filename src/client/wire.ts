/** Calls that send JSON and get JSON: what every method of the client is made of. */
import type { z } from 'zod';
import { IDEMPOTENCY_HEADER } from '../api/schemas.ts';
import { parseBody, problemToError } from './problem.ts';
import { type Answer, type Call, request } from './transport.ts';

export type Query = Readonly<Record<string, string | number | boolean | undefined>>;

export interface Send {
  readonly method: 'POST' | 'PUT';
  readonly path: string;
  readonly body: unknown;
  readonly idempotencyKey?: string | undefined;
  /** Milliseconds, where the answer may take longer than a plain call. */
  readonly timeoutMs?: number;
}

export interface Wire {
  get<Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    query?: Query,
  ): Promise<z.output<Schema>>;
  /** The raw answer, for calls whose status tells something. */
  send(call: Send): Promise<Answer>;
  sendFor<Schema extends z.ZodType>(schema: Schema, call: Send): Promise<z.output<Schema>>;
}

export function withQuery(path: string, query: Query): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value));
  }
  return search.size === 0 ? path : `${path}?${search.toString()}`;
}

/** Every call rejects with OutliveError only. */
export function createWire(socketPath: string, timeoutMs: number): Wire {
  const call = async (parts: Omit<Call, 'timeoutMs'> & { timeoutMs?: number }): Promise<Answer> => {
    const answer = await request(socketPath, { timeoutMs, ...parts });
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw problemToError(answer.status, answer.text);
  };
  const send: Wire['send'] = ({ method, path, body, idempotencyKey, timeoutMs: own }) =>
    call({
      method,
      path,
      headers: {
        'content-type': 'application/json',
        ...(idempotencyKey === undefined ? {} : { [IDEMPOTENCY_HEADER]: idempotencyKey }),
      },
      body: JSON.stringify(body),
      ...(own === undefined ? {} : { timeoutMs: own }),
    });
  return {
    get: async (schema, path, query = {}) =>
      parseBody(schema, (await call({ method: 'GET', path: withQuery(path, query) })).text),
    send,
    sendFor: async (schema, parts) => parseBody(schema, (await send(parts)).text),
  };
}
