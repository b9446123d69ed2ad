/** The typed API client that every front of outlive uses; it hides HTTP, SSE and reconnects. */
import { randomUUID } from 'node:crypto';
import {
  type CancelInput,
  type EventPage,
  type EventView,
  eventPageSchema,
  type StartWorkUnitInput,
  startWorkUnitSchema,
  type WorkUnitPage,
  type WorkUnitView,
  workUnitPageSchema,
  workUnitViewSchema,
} from '../api/schemas.ts';
import {
  type ArtifactPage,
  type ArtifactView,
  artifactPageSchema,
  artifactViewSchema,
} from '../api/schemas-artifacts.ts';
import {
  type DryRun,
  dryRunSchema,
  type Explanation,
  explanationSchema,
} from '../api/schemas-explain.ts';
import { type ReconcileView, reconcileReportSchema } from '../api/schemas-runtime.ts';
import { OutliveError } from '../domain/errors.ts';
import type { WorkUnitStatus } from '../domain/work-unit.ts';
import { type ApprovalCalls, createApprovalCalls } from './approvals.ts';
import { readBody } from './body.ts';
import { type Control, createControl, RECONCILE_MS } from './control.ts';
import { createDriverCalls, type DriverCalls } from './drivers.ts';
import { type FollowOptions, followEvents } from './follow.ts';
import type { FollowTimes } from './link.ts';
import { parseBody } from './problem.ts';
import { sendAgainWhenLost } from './resend.ts';
import { createWire } from './wire.ts';
import { type WorkspaceWatch, watchWorkspace } from './workspace.ts';

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
export interface Client extends Control, ApprovalCalls, DriverCalls {
  /** Always sends an idempotency key, so that a lost answer is asked for again without a second run. */
  startWorkUnit(input: StartWorkUnitInput): Promise<Started>;
  listWorkUnits(filter?: ListFilter): Promise<WorkUnitPage>;
  getWorkUnit(id: string): Promise<WorkUnitView>;
  /** Why it is where it is. */
  explain(id: string): Promise<Explanation>;
  /** What {@link startWorkUnit} would do; stores nothing. */
  dryRun(input: StartWorkUnitInput): Promise<DryRun>;
  /** Sent again, with the same key, when the answer is lost: it has one effect. */
  cancelWorkUnit(id: string, input?: CancelInput, idempotencyKey?: string): Promise<WorkUnitView>;
  retryWorkUnit(id: string, idempotencyKey?: string): Promise<WorkUnitView>;
  reconcileWorkUnit(id: string): Promise<ReconcileView>;
  /** What its ended attempts left to read, oldest attempt first. */
  artifacts(id: string): Promise<ArtifactPage>;
  artifact(id: string): Promise<ArtifactView>;
  /** What an artifact holds, in pieces. The reader sets the pace: only the connection has a deadline. */
  artifactContent(id: string): AsyncGenerator<Buffer, void>;
  /** One page of events after `afterSeq`. */
  events(id: string, options?: { afterSeq?: number; limit?: number }): Promise<EventPage>;
  /** All stored events after `afterSeq`, page by page. */
  allEvents(id: string, afterSeq?: number): AsyncGenerator<EventView, void>;
  /** Stored events, then new ones until the work unit ends. Reconnects; see follow.ts. */
  followEvents(id: string, options?: FollowOptions): AsyncGenerator<EventView, void>;
  /** A snapshot, then every event of the workspace; over restarts of the daemon. See workspace.ts. */
  watchWorkspace(watch: WorkspaceWatch): Promise<void>;
}

const artifactPath = (id: string): string => `/artifacts/${encodeURIComponent(id)}`;
const unitPath = (id: string): string => `/work-units/${encodeURIComponent(id)}`;

/** A client of the daemon that listens on `socketPath`. It keeps no connection open between calls. */
export function createClient({
  socketPath,
  timeoutMs = 5_000,
  follow = {},
}: ClientOptions): Client {
  const wire = createWire(socketPath, timeoutMs);
  const control = createControl(wire);
  const getWorkUnit = (id: string) => wire.get(workUnitViewSchema, unitPath(id));
  const listWorkUnits: Client['listWorkUnits'] = (filter = {}) =>
    wire.get(workUnitPageSchema, '/work-units', { ...filter });
  const events: Client['events'] = (id, query = {}) =>
    wire.get(eventPageSchema, `${unitPath(id)}/events`, query);
  const activeWorkUnits = () => allActive(listWorkUnits);
  const approvals = createApprovalCalls(wire, timeoutMs);
  const source = { socketPath, timeoutMs, times: follow };

  return {
    ...control,
    ...approvals,
    ...createDriverCalls(wire),
    async startWorkUnit(input) {
      const idempotencyKey = input.idempotencyKey ?? randomUUID();
      const body = checkStart({ ...input, idempotencyKey });
      const send = () => wire.send({ method: 'POST', path: '/work-units', body, idempotencyKey });
      const answer = await sendAgainWhenLost(send, timeoutMs);
      return {
        workUnit: parseBody(workUnitViewSchema, answer.text),
        created: answer.status === 201,
      };
    },
    dryRun: (input) =>
      wire.sendFor(dryRunSchema, {
        method: 'POST',
        path: '/work-units?dryRun=true',
        body: checkStart(input),
      }),
    listWorkUnits,
    getWorkUnit,
    explain: (id) => wire.get(explanationSchema, `${unitPath(id)}/explain`),
    cancelWorkUnit: (id, input = {}, idempotencyKey = randomUUID()) => {
      const path = `${unitPath(id)}/cancel`;
      const parts = { method: 'POST', path, body: input, idempotencyKey } as const;
      return sendAgainWhenLost(() => wire.sendFor(workUnitViewSchema, parts), timeoutMs);
    },
    retryWorkUnit: (id, idempotencyKey = randomUUID()) => {
      const path = `${unitPath(id)}/retry`;
      const parts = { method: 'POST', path, body: {}, idempotencyKey } as const;
      return sendAgainWhenLost(() => wire.sendFor(workUnitViewSchema, parts), timeoutMs);
    },
    reconcileWorkUnit: (id) =>
      wire.sendFor(reconcileReportSchema, {
        method: 'POST',
        path: `${unitPath(id)}/reconcile`,
        body: {},
        timeoutMs: RECONCILE_MS,
      }),
    artifacts: (id) => wire.get(artifactPageSchema, `${unitPath(id)}/artifacts`),
    artifact: (id) => wire.get(artifactViewSchema, artifactPath(id)),
    artifactContent: (id) =>
      readBody(socketPath, { method: 'GET', path: `${artifactPath(id)}/content`, timeoutMs }),
    events,
    allEvents: (id, afterSeq = 0) => pageThrough(events, id, afterSeq),
    followEvents: (id, options = {}) =>
      followEvents({ ...source, getWorkUnit, events }, id, options),
    watchWorkspace: (watch) => {
      const { supervisor } = control;
      const { pendingApprovals } = approvals;
      return watchWorkspace({ ...source, activeWorkUnits, supervisor, pendingApprovals }, watch);
    },
  };
}

/** All that has not ended, page by page. */
async function allActive(list: Client['listWorkUnits']): Promise<WorkUnitView[]> {
  const items: WorkUnitView[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const filter: ListFilter = { active: true, limit: 1_000, ...(cursor ? { cursor } : {}) };
    const page = await list(filter);
    items.push(...page.items);
    cursor = page.nextCursor;
  }
  return items;
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
