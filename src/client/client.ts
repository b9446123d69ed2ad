/** The typed API client that every front of outlive uses; it hides HTTP, SSE and reconnects. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { z } from 'zod';
import {
  type CancelInput,
  type EventPage,
  type EventView,
  eventPageSchema,
  IDEMPOTENCY_HEADER,
  type RuntimeView,
  runtimeViewSchema,
  type StartWorkUnitInput,
  startWorkUnitSchema,
  type WorkUnitPage,
  type WorkUnitView,
  workUnitPageSchema,
  workUnitViewSchema,
} from '../api/schemas.ts';
import { OutliveError } from '../domain/errors.ts';
import type { WorkUnitStatus } from '../domain/work-unit.ts';
import { type FollowOptions, followEvents } from './follow.ts';
import type { FollowTimes } from './link.ts';
import { parseBody, problemToError } from './problem.ts';
import { type Call, request, unreachableReason } from './transport.ts';

/** First pause before a lost start is sent again, milliseconds; doubles. */
const RESEND_PAUSE_MS = 50;

export interface ClientOptions {
  readonly socketPath: string;
  /** Milliseconds a plain call may take to connect and be answered. */
  readonly timeoutMs?: number;
  readonly follow?: Partial<FollowTimes>;
}

export interface ListFilter {
  readonly active?: boolean;
  readonly status?: WorkUnitStatus;
  readonly limit?: number;
  readonly cursor?: string;
}

export interface Started {
  readonly workUnit: WorkUnitView;
  /** False when the idempotency key had been used: this is the work unit of that time. */
  readonly created: boolean;
}

/** `id` is a work unit's id or its handle. Every method rejects with OutliveError only. */
export interface Client {
  /** Always sends an idempotency key, so that a lost answer is asked for again without a second run. */
  startWorkUnit(input: StartWorkUnitInput): Promise<Started>;
  listWorkUnits(filter?: ListFilter): Promise<WorkUnitPage>;
  getWorkUnit(id: string): Promise<WorkUnitView>;
  cancelWorkUnit(id: string, input?: CancelInput): Promise<WorkUnitView>;
  /** One page of events after `afterSeq`. */
  events(id: string, options?: { afterSeq?: number; limit?: number }): Promise<EventPage>;
  /** All stored events after `afterSeq`, page by page. */
  allEvents(id: string, afterSeq?: number): AsyncGenerator<EventView, void>;
  /** Stored events, then new ones until the work unit ends. Reconnects; see follow.ts. */
  followEvents(id: string, options?: FollowOptions): AsyncGenerator<EventView, void>;
  runtime(): Promise<RuntimeView>;
}

type Query = Readonly<Record<string, string | number | boolean | undefined>>;

function withQuery(path: string, query: Query): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value));
  }
  return search.size === 0 ? path : `${path}?${search.toString()}`;
}

const unitPath = (id: string): string => `/work-units/${encodeURIComponent(id)}`;

/** A client of the daemon that listens on `socketPath`. It keeps no connection open between calls. */
export function createClient({
  socketPath,
  timeoutMs = 5_000,
  follow = {},
}: ClientOptions): Client {
  const call = async (
    parts: Omit<Call, 'timeoutMs'>,
  ): Promise<{ status: number; text: string }> => {
    const answer = await request(socketPath, { timeoutMs, ...parts });
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw problemToError(answer.status, answer.text);
  };
  const get = async <Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    query: Query = {},
  ): Promise<z.output<Schema>> =>
    parseBody(schema, (await call({ method: 'GET', path: withQuery(path, query) })).text);
  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    call({
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });

  const getWorkUnit = (id: string) => get(workUnitViewSchema, unitPath(id));
  const events: Client['events'] = (id, query = {}) =>
    get(eventPageSchema, `${unitPath(id)}/events`, query);

  return {
    async startWorkUnit(input) {
      const idempotencyKey = input.idempotencyKey ?? randomUUID();
      const body = checkStart({ ...input, idempotencyKey });
      const send = () => post('/work-units', body, { [IDEMPOTENCY_HEADER]: idempotencyKey });
      const answer = await sendAgainWhenLost(send, timeoutMs);
      return {
        workUnit: parseBody(workUnitViewSchema, answer.text),
        created: answer.status === 201,
      };
    },
    listWorkUnits: (filter = {}) => get(workUnitPageSchema, '/work-units', { ...filter }),
    getWorkUnit,
    async cancelWorkUnit(id, input = {}) {
      const answer = await post(`${unitPath(id)}/cancel`, input);
      return parseBody(workUnitViewSchema, answer.text);
    },
    events,
    allEvents: (id, afterSeq = 0) => pageThrough(events, id, afterSeq),
    followEvents: (id, options = {}) =>
      followEvents({ socketPath, timeoutMs, getWorkUnit, events, times: follow }, id, options),
    runtime: () => get(runtimeViewSchema, '/runtime'),
  };
}

function checkStart(input: StartWorkUnitInput): unknown {
  const parsed = startWorkUnitSchema.safeParse(input);
  if (parsed.success) return parsed.data;
  const fields = parsed.error.issues.map((issue) => ({
    path: `/${issue.path.join('/')}`,
    message: issue.message,
  }));
  const said = fields.map(({ path, message }) => `${path}: ${message}`).join('; ');
  throw new OutliveError('invalid_request', `${said}.`, { fields, cause: parsed.error });
}

/**
 * Sends; when the connection is lost before the answer, sends the same once more,
 * waiting for the daemon to listen again at most `withinMs`.
 */
async function sendAgainWhenLost<Result>(
  send: () => Promise<Result>,
  withinMs: number,
): Promise<Result> {
  const end = performance.now() + withinMs;
  let resent = false;
  for (let wait = RESEND_PAUSE_MS; ; wait *= 2) {
    try {
      return await send();
    } catch (error) {
      const reason = unreachableReason(error);
      const mayResend = reason === 'lost' ? !resent : resent && reason === 'absent';
      if (!mayResend || performance.now() + wait > end) throw error;
      resent = true;
      await pause(wait);
    }
  }
}

async function* pageThrough(
  events: Client['events'],
  id: string,
  afterSeq: number,
): AsyncGenerator<EventView, void> {
  let from = id;
  let after = afterSeq;
  for (;;) {
    const page = await events(from, { afterSeq: after });
    yield* page.items;
    const last = page.items.at(-1);
    if (!last || page.nextCursor === null) return;
    from = last.workUnitId; // A handle may pass to another work unit between two pages.
    after = last.seq;
  }
}
