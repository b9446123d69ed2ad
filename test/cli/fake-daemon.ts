/**
 * A scripted HTTP server on a unix socket: what the client and the command line
 * talk to where the real daemon would only make a failure harder to provoke.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import type { EventView, RuntimeView, WorkUnitView } from '../../src/api/schemas.ts';
import { ERRORS, type ErrorCode } from '../../src/domain/errors.ts';
import { defaultTimeouts } from '../../src/domain/work-unit.ts';

export interface Received {
  readonly method: string;
  readonly url: URL;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

export type Handler = (received: Received, response: http.ServerResponse) => void;

/** `runtimeDirectory` serves as XDG_RUNTIME_DIR; the socket lies where the daemon's would. */
export class FakeDaemon {
  readonly runtimeDirectory = mkdtempSync(path.join(os.tmpdir(), 'outlive-cli-'));
  readonly socketPath = path.join(this.runtimeDirectory, 'outlive', 'main', 'api', 'api.sock');
  readonly requests: Received[] = [];
  #handler: Handler;
  #server: http.Server | null = null;

  constructor(handler: Handler) {
    this.#handler = handler;
  }

  async listen(): Promise<this> {
    const server = http.createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const received = {
          method: request.method ?? '',
          url: new URL(request.url ?? '/', 'http://daemon'),
          headers: request.headers,
          body: Buffer.concat(chunks).toString('utf8'),
        };
        this.requests.push(received);
        this.#handler(received, response);
      });
      request.on('error', () => {}); // A client that leaves in the middle is part of the tests.
    });
    this.#server = server;
    mkdirSync(path.dirname(this.socketPath), { recursive: true });
    rmSync(this.socketPath, { force: true });
    await new Promise<void>((resolve) => server.listen(this.socketPath, resolve));
    return this;
  }

  handle(handler: Handler): void {
    this.#handler = handler;
  }

  /** Dies as a killed daemon does: every connection is cut. */
  async die(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    if (!server) return;
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }

  async dispose(): Promise<void> {
    await this.die();
    rmSync(this.runtimeDirectory, { recursive: true, force: true });
  }
}

export function json(response: http.ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

export function problem(
  response: http.ServerResponse,
  code: ErrorCode,
  detail: string,
  errors: readonly { path: string; message: string }[] = [],
): void {
  const { status, title } = ERRORS[code];
  const body = { type: `urn:outlive:${code}`, title, status, code, detail, errors };
  response
    .writeHead(status, { 'content-type': 'application/problem+json' })
    .end(JSON.stringify(body));
}

export const frame = (event: EventView): string =>
  `id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

/** Begins an event stream with these events; ends it unless told to keep it open. */
export function stream(
  response: http.ServerResponse,
  events: readonly EventView[],
  { keepOpen = false }: { keepOpen?: boolean } = {},
): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  response.write(`: hello\n\n${events.map(frame).join('')}`);
  if (!keepOpen) response.end();
}

export const WORK_UNIT_ID = '01a22907-87b6-7000-8000-000000000001';

export function anEvent(
  seq: number,
  type: EventView['type'] = 'progress',
  data: EventView['data'] = {},
): EventView {
  return {
    id: `event-${seq}`,
    workUnitId: WORK_UNIT_ID,
    attemptId: null,
    seq,
    position: 1_000 + seq,
    ts: new Date(Date.UTC(2026, 10, 29, 20, 0, seq)).toISOString(),
    type,
    actor: 'system',
    data,
  };
}

/** `count` events, the last of them terminal. */
export function aRun(count: number, end: EventView['type'] = 'work_unit.succeeded'): EventView[] {
  return Array.from({ length: count }, (_, index) =>
    index === count - 1 ? anEvent(count, end) : anEvent(index + 1),
  );
}

export function aWorkUnit(changes: Partial<WorkUnitView> = {}): WorkUnitView {
  const timeoutPolicy = defaultTimeouts('task_run');
  return {
    id: WORK_UNIT_ID,
    workspaceId: 'main',
    handle: 'issue42',
    kind: 'task_run',
    ownerType: 'user',
    ownerId: 'ada',
    channelId: null,
    taskId: null,
    teammateId: null,
    providerPresetId: null,
    externalSubject: null,
    runnerId: 'pi',
    idempotencyKey: 'key',
    status: 'running',
    priority: 0,
    attemptCount: 1,
    activeAttemptId: null,
    createdByClientId: 'cli',
    createdByActor: 'user',
    createdAt: '2026-11-29T20:00:00.000Z',
    updatedAt: '2026-11-29T20:00:00.000Z',
    startedAt: '2026-11-29T20:00:01.000Z',
    endedAt: null,
    lastEventAt: null,
    lastHeartbeatAt: null,
    idleTimeoutMs: timeoutPolicy.idleTimeoutMs,
    hardTimeoutMs: timeoutPolicy.hardTimeoutMs,
    timeoutPolicy,
    errorCode: null,
    errorMessage: null,
    outcome: null,
    cwd: '/repo',
    model: null,
    after: [],
    afterNeeded: null,
    spend: {
      costUsd: 0,
      tokens: 0,
      unpricedTokens: 0,
      maxCostUsd: null,
      maxTokens: null,
      remainingCostUsd: null,
      remainingTokens: null,
    },
    live: null,
    attempts: [],
    ...changes,
  };
}

export function aRuntime(changes: Partial<RuntimeView> = {}): RuntimeView {
  return {
    runtimeInstanceId: 'runtime-1',
    workspaceId: 'main',
    status: 'ready',
    problems: [],
    startedAt: '2026-11-29T20:00:00.000Z',
    schemaVersion: 1,
    version: '0.1.0',
    pid: 4242,
    executor: 'systemd',
    socket: '/run/user/1000/outlive/main/api/api.sock',
    host: '127.0.0.1',
    port: 5187,
    activeAttempts: 0,
    tookOver: null,
    ...changes,
  };
}
