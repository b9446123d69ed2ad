/**
 * Following the whole workspace: a snapshot, then every event after it, for as long as
 * the caller wants.
 *
 * Another runtimeInstanceId means another daemon, and a refused cursor means a gap: both
 * are boundaries. Then a new snapshot is loaded and applied before the cursor moves again.
 * What streams in meanwhile waits in a bounded buffer, so nothing is applied twice over a
 * newer state, nothing before its snapshot, and nothing is lost.
 */
import type { IncomingMessage } from 'node:http';
import { type EventView, eventViewSchema, type WorkUnitView } from '../api/schemas.ts';
import type { ApprovalView } from '../api/schemas-approvals.ts';
import { replayWindowSchema, type SupervisorView } from '../api/schemas-runtime.ts';
import { OutliveError } from '../domain/errors.ts';
import { chunks } from './follow.ts';
import { FOLLOW_TIMES, type FollowTimes, Link } from './link.ts';
import { parseBody, problemToError } from './problem.ts';
import { SseParser } from './sse-parser.ts';
import { open, readAll } from './transport.ts';

/** The state of the workspace at (or a little after) a position. */
export interface Snapshot {
  readonly runtimeInstanceId: string;
  readonly position: number;
  readonly supervisor: SupervisorView;
  /** All that has not ended. */
  readonly workUnits: readonly WorkUnitView[];
  /** All that somebody still has to answer. */
  readonly questions: readonly ApprovalView[];
}

export interface WorkspaceWatch {
  /** Called at the start and after every boundary; replaces all that was known. Awaited. */
  readonly onSnapshot: (snapshot: Snapshot) => void | Promise<void>;
  /** Called in order of position. Awaited, and the cursor moves only afterwards. */
  readonly onEvent: (event: EventView) => void | Promise<void>;
  /** Ends the watch, without an error. */
  readonly signal?: AbortSignal;
  readonly onConnection?: (state: 'connected' | 'away') => void;
}

/** What watching needs of the client. */
export interface WorkspaceSource {
  readonly socketPath: string;
  readonly timeoutMs: number;
  readonly times: Partial<FollowTimes>;
  supervisor(): Promise<SupervisorView>;
  activeWorkUnits(): Promise<WorkUnitView[]>;
  pendingApprovals(): Promise<ApprovalView[]>;
}

/** Events held back while a snapshot is loaded and applied; more means: load a newer one. */
const BUFFER_MAX = 10_000;

interface Cursor {
  runtimeInstanceId: string;
  position: number;
}

/** Thrown to start over with a snapshot. */
class Boundary extends Error {}

type Frame =
  | { readonly kind: 'event'; readonly event: EventView }
  | { readonly kind: 'ready'; readonly runtimeInstanceId: string };

/** See {@link Client.watchWorkspace}. Resolves when the signal ends it; rejects when nobody answers any more. */
export async function watchWorkspace(
  source: WorkspaceSource,
  watch: WorkspaceWatch,
): Promise<void> {
  const times = { ...FOLLOW_TIMES, ...source.times };
  const link = new Link(times, watch.onConnection ?? (() => {}));
  let cursor: Cursor | null = null;
  while (!watch.signal?.aborted) {
    const before: number = cursor?.position ?? -1;
    try {
      cursor = cursor
        ? await resume(source, times, watch, link, cursor)
        : await begin(source, times, watch, link);
    } catch (error) {
      if (watch.signal?.aborted) return;
      if (error instanceof Lost) {
        cursor = error.cursor;
        link.lost(error.cause, before);
      } else if (error instanceof Boundary || isGap(error)) cursor = null;
      else link.lost(error, before);
    }
    if (cursor && cursor.position !== before) link.progressed();
    await link.pause(watch.signal);
  }
}

/** A connection went away; what was applied by then stays applied. */
class Lost extends Error {
  readonly cursor: Cursor;
  constructor(cursor: Cursor, cause: unknown) {
    super('the connection was lost', { cause });
    this.cursor = cursor;
  }
}

const isGap = (error: unknown): boolean =>
  error instanceof OutliveError && error.code === 'control_plane_snapshot_required';

/** Stream first, then the snapshot, then what streamed in meanwhile, then the rest. */
async function begin(
  source: WorkspaceSource,
  times: FollowTimes,
  watch: WorkspaceWatch,
  link: Link,
): Promise<Cursor> {
  const supervisor = await source.supervisor();
  const { position, runtime } = supervisor;
  const cursor: Cursor = { position, runtimeInstanceId: runtime.runtimeInstanceId };
  const response = await connect(source, cursor.position, watch.signal);
  const buffer = new FrameBuffer(frames(response, source.socketPath, times));
  try {
    link.connected();
    const workUnits = await source.activeWorkUnits();
    const questions = await source.pendingApprovals();
    await watch.onSnapshot({ ...cursor, supervisor, workUnits, questions });
    await apply(buffer.all(), watch, cursor);
    return cursor;
  } catch (error) {
    throw rethrown(error, cursor);
  } finally {
    response.destroy();
  }
}

/** Goes on after a lost connection, unless another daemon answers now. */
async function resume(
  source: WorkspaceSource,
  times: FollowTimes,
  watch: WorkspaceWatch,
  link: Link,
  cursor: Cursor,
): Promise<Cursor> {
  const { runtime } = await source.supervisor();
  if (runtime.runtimeInstanceId !== cursor.runtimeInstanceId) throw new Boundary();
  const response = await connect(source, cursor.position, watch.signal);
  try {
    link.connected();
    await apply(frames(response, source.socketPath, times), watch, cursor);
    return cursor;
  } catch (error) {
    throw rethrown(error, cursor);
  } finally {
    response.destroy();
  }
}

/** Only a lost connection keeps the cursor; a caller's own error is not ours to swallow. */
function rethrown(error: unknown, cursor: Cursor): unknown {
  const isConnection =
    error instanceof OutliveError && ['daemon_unreachable', 'stream_stalled'].includes(error.code);
  return isConnection ? new Lost(cursor, error) : error;
}

async function apply(
  stream: AsyncIterable<Frame>,
  watch: WorkspaceWatch,
  cursor: Cursor,
): Promise<void> {
  for await (const frame of stream) {
    if (watch.signal?.aborted) return;
    if (frame.kind === 'ready') {
      if (frame.runtimeInstanceId !== cursor.runtimeInstanceId) throw new Boundary();
    } else if (frame.event.position > cursor.position) {
      await watch.onEvent(frame.event);
      cursor.position = frame.event.position;
    }
  }
}

async function connect(
  source: WorkspaceSource,
  afterPosition: number,
  signal: AbortSignal | undefined,
): Promise<IncomingMessage> {
  const { socketPath, timeoutMs } = source;
  const response = await open(socketPath, {
    method: 'GET',
    path: `/events?afterPosition=${afterPosition}`,
    headers: { accept: 'text/event-stream' },
    timeoutMs,
    signal,
  });
  if (response.statusCode === 200) return response;
  const text = await readAll(socketPath, response, timeoutMs);
  throw problemToError(response.statusCode ?? 0, text);
}

async function* frames(
  response: IncomingMessage,
  socketPath: string,
  times: FollowTimes,
): AsyncGenerator<Frame, void> {
  const parser = new SseParser();
  for await (const chunk of chunks(response, socketPath, () => times.silenceMs)) {
    for (const { event, data } of parser.push(chunk)) {
      if (event === 'problem') throw problemToError(200, data);
      if (event === 'replay-ready') {
        const { runtimeInstanceId } = parseBody(replayWindowSchema, data);
        yield { kind: 'ready', runtimeInstanceId };
      } else yield { kind: 'event', event: parseBody(eventViewSchema, data) };
    }
  }
}

/** Reads ahead from the moment it is made, up to a bound. */
class FrameBuffer {
  readonly #waiting: Frame[] = [];
  #end: { readonly error: unknown } | 'clean' | null = null;
  #wake: () => void = () => {};
  #isAhead = true;

  constructor(source: AsyncGenerator<Frame, void>) {
    void this.#fill(source);
  }

  async #fill(source: AsyncGenerator<Frame, void>): Promise<void> {
    try {
      for await (const frame of source) {
        this.#waiting.push(frame);
        // Once somebody reads, they set the pace; before, the bound does.
        if (this.#waiting.length > BUFFER_MAX) throw new Boundary();
        this.#wake();
        if (this.#isAhead) continue;
        while (this.#waiting.length > 0) await this.#drained();
      }
      this.#end = 'clean';
    } catch (error) {
      this.#end = { error };
    }
    this.#wake();
  }

  #onDrained: () => void = () => {};
  #drained(): Promise<void> {
    return new Promise((resolve) => {
      this.#onDrained = resolve;
    });
  }

  async *all(): AsyncGenerator<Frame, void> {
    this.#isAhead = false;
    for (;;) {
      const frame = this.#waiting.shift();
      if (frame) {
        yield frame;
        continue;
      }
      this.#onDrained();
      if (this.#end === 'clean') return;
      if (this.#end) throw this.#end.error;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
