/** An outbox and a narrator on a real store, with an API that is told how to behave. */
import { randomBytes } from 'node:crypto';
import { pino } from 'pino';
import type { EventType } from '../../src/domain/events.ts';
import { type Entropy, timestamp } from '../../src/domain/ids.ts';
import { createNarrator, type NarratedTurn, type Narrator } from '../../src/linear/narrator.ts';
import { createOutbox, type Outbox, type OutboxPolicy } from '../../src/linear/outbox.ts';
import type {
  ActivityInput,
  LinearApi,
  LinearProblem,
  Priority,
  SessionUpdate,
} from '../../src/linear/port.ts';
import { LinearError } from '../../src/linear/port.ts';
import type { OutboxRow } from '../../src/store/linear-outbox.ts';
import type { Store } from '../../src/store/store.ts';
import { createHub } from '../../src/supervisor/hub.ts';
import { createWriter, type Writer } from '../../src/supervisor/writer.ts';
import { insertWorkUnit, open, raw, temporaryDirectory, WORKSPACE } from '../store/rig.ts';

interface Row {
  readonly session_id: string;
  readonly kind: string;
  readonly state: string;
  readonly ephemeral: number;
  readonly terminal: number;
  readonly tries: number;
  readonly body_json: string;
}

export interface Said {
  /** In short, see {@link textOf}. */
  readonly text: string;
  readonly state: string;
  readonly ephemeral: boolean;
  readonly terminal: boolean;
}

/** The machine's clock, which tests replace by vitest's; random bytes are the machine's. */
const ENTROPY: Entropy = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  uptimeSeconds: () => performance.now() / 1_000,
  random: (size) => randomBytes(size),
};

/** A call of the API and the priority it had. */
export interface Posted {
  readonly input: ActivityInput;
  readonly priority: Priority;
}

/** Linear as far as the outbox knows it. `behave` decides what happens to a post. */
export class FakeApi implements LinearApi {
  /** Every try, also those that failed. */
  readonly tries: Posted[] = [];
  /** What Linear has, in the order in which it came; an id is there once. */
  readonly has: ActivityInput[] = [];
  readonly updates: { sessionId: string; update: SessionUpdate }[] = [];
  readonly issues: { issueId: string; input: object }[] = [];
  /** Posts that are under way now, and the most there ever were. */
  underWay = 0;
  most = 0;
  /** Resolves for a post that works; what it rejects with is the answer. */
  behave: (input: ActivityInput, priority: Priority) => Promise<void> = () => Promise.resolve();
  behaveUpdate: (update: SessionUpdate) => Promise<void> = () => Promise.resolve();

  async createActivity(input: ActivityInput, priority: Priority): Promise<void> {
    this.tries.push({ input, priority });
    this.underWay += 1;
    this.most = Math.max(this.most, this.underWay);
    try {
      await this.behave(input, priority);
    } finally {
      this.underWay -= 1;
    }
    this.take(input);
  }

  /** It arrived, whatever the caller is told. */
  take(input: ActivityInput): void {
    if (!this.has.some(({ id }) => id === input.id)) this.has.push(input);
  }

  async updateSession(sessionId: string, update: SessionUpdate): Promise<void> {
    await this.behaveUpdate(update);
    this.updates.push({ sessionId, update });
  }

  updateIssue(issueId: string, input: object): Promise<void> {
    this.issues.push({ issueId, input });
    return Promise.resolve();
  }

  /** Texts of what Linear has, in order. */
  get texts(): string[] {
    return this.has.map(({ content }) => textOf(content));
  }

  issue = (): Promise<null> => Promise.resolve(null);
  startedState = (): Promise<null> => Promise.resolve(null);
  viewer = () => Promise.resolve({ id: 'app', organizationId: 'org' });
  recentSessions = (): Promise<[]> => Promise.resolve([]);
}

/** A content in short. */
export const textOf = (content: ActivityInput['content']): string =>
  content.type === 'action'
    ? `${content.action}: ${content.parameter}${content.result === undefined ? '' : ` = ${content.result}`}`
    : `${content.type}: ${content.body}`;

export const failing = (problem: LinearProblem): Promise<never> =>
  Promise.reject(new LinearError(problem));

export class OutboxRig {
  readonly directory: string;
  readonly entropy: Entropy;
  store: Store;
  writer: Writer;
  readonly api = new FakeApi();
  readonly settled: OutboxRow[] = [];
  readonly log: { level: number; msg: string }[] = [];
  readonly #logger = pino(
    { level: 'info' },
    { write: (line: string) => this.log.push(JSON.parse(line) as { level: number; msg: string }) },
  );
  readonly #waiting = new Set<() => void>();
  outbox: Outbox | null = null;

  /** On a store of its own, or on one that is there already with its clock. */
  constructor(known?: { store: Store; directory: string; entropy: Entropy }) {
    this.directory = known?.directory ?? temporaryDirectory();
    this.store = known?.store ?? open(this.directory);
    this.entropy = known?.entropy ?? ENTROPY;
    this.writer = this.writerOf(this.store);
  }

  writerOf(store: Store): Writer {
    const hub = createHub((error) => {
      throw error;
    });
    return createWriter(store, hub, this.entropy);
  }

  parts(store: Store = this.store) {
    const writer = store === this.store ? this.writer : this.writerOf(store);
    return { store, writer, entropy: this.entropy, log: this.#logger, workspace: WORKSPACE };
  }

  start(
    policy: Partial<OutboxPolicy> = {},
    api: LinearApi = this.api,
    store: Store = this.store,
  ): Outbox {
    this.outbox = createOutbox({
      ...this.parts(store),
      api,
      policy,
      onSettled: (row) => {
        this.settled.push(row);
        for (const look of [...this.#waiting]) look();
      },
    });
    return this.outbox;
  }

  /** Resolves once rows were settled so that the test holds. */
  whenSettled(test: (rows: readonly OutboxRow[]) => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!test(this.settled)) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }

  narrator(
    store: Store = this.store,
    pressed: () => boolean = () => false,
    ownNames: readonly string[] = ['outlive'],
  ): Narrator {
    const wake = (): void => this.outbox?.wake();
    return createNarrator({ ...this.parts(store), ownNames, outbox: { wake, pressed } });
  }

  /** A session of Linear's, as the ingress stores it. */
  session(id: string): string {
    const at = timestamp(this.entropy);
    raw(this.directory)
      .prepare(
        `INSERT OR IGNORE INTO linear_sessions
         (id, workspace_id, organization_id, channel_key, known, created_at, updated_at)
         VALUES (?, ?, 'org', ?, 1, ?, ?)`,
      )
      .run(id, WORKSPACE, `issue of ${id}`, at, at);
    return id;
  }

  /** A turn with a work unit of its own. */
  turn(sessionId = 'session', turnId = `turn of ${sessionId}`): NarratedTurn {
    this.session(sessionId);
    const workUnitId = insertWorkUnit(this.store, { runnerId: 'pi' });
    raw(this.directory)
      .prepare(
        `INSERT INTO linear_turns (id, workspace_id, session_id, channel_key, source_key, kind,
           state, prompt, work_unit_id, created_at)
         VALUES (?, ?, ?, ?, ?, 'created', 'running', 'go', ?, ?)`,
      )
      .run(turnId, WORKSPACE, sessionId, 'issue', turnId, workUnitId, timestamp(this.entropy));
    return { sessionId, turnId, workUnitId };
  }

  /** Another turn takes the place of this one. */
  interrupt({ turnId }: NarratedTurn): void {
    raw(this.directory)
      .prepare(
        `UPDATE linear_turns SET interrupted_by = 'the next', state = 'interrupted' WHERE id = ?`,
      )
      .run(turnId);
  }

  /** Appends events of the work unit of a turn. */
  events(
    { workUnitId }: NarratedTurn,
    ...events: readonly (readonly [EventType, Record<string, unknown>?])[]
  ): void {
    this.writer.commit((transaction) =>
      transaction.append(
        workUnitId,
        events.map(([type, data = {}]) => ({ type, data, actor: 'runner' as const })),
      ),
    );
  }

  /** What was put into the outbox to be said, in order. */
  said(): Said[] {
    return this.rows()
      .filter(({ kind }) => kind === 'activity')
      .map(({ body_json, state, ephemeral, terminal }) => ({
        text: textOf((JSON.parse(body_json) as Pick<ActivityInput, 'content'>).content),
        state,
        ephemeral: ephemeral === 1,
        terminal: terminal === 1,
      }));
  }

  rows(): Row[] {
    return raw(this.directory).prepare('SELECT * FROM linear_outbox ORDER BY seq').all() as Row[];
  }
}

/** A store whose `n`-th statement fails; the count goes on over outbox and cursors. */
export function failingAt(store: Store, n: number): Store {
  let count = 0;
  const group = <Group extends object>(target: Group): Group =>
    new Proxy(target, {
      get: (object, name) => {
        const value = Reflect.get(object, name) as unknown;
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          count += 1;
          if (count === n) throw new Error('injected');
          return Reflect.apply(value, object, args) as unknown;
        };
      },
    });
  const { linearOutbox, linearFacts } = store;
  return { ...store, linearOutbox: group(linearOutbox), linearFacts: group(linearFacts) };
}

let calls = 0;

/** The two events of a tool call. */
export function callOf(
  tool: string,
  given: unknown,
  result = 'done',
): [[EventType, Record<string, unknown>], [EventType, Record<string, unknown>]] {
  const toolCallId = `call ${++calls}`;
  return [
    ['tool.start', { toolCallId, tool, arguments: given }],
    ['tool.end', { toolCallId, tool, isError: false, result, durationMs: 1 }],
  ];
}

/** The events of a message of the model: of its text, and of its end. */
export function messageOf(
  message: number,
  text: string,
  stopReason = 'toolUse',
): [EventType, Record<string, unknown>][] {
  return [
    ['agent.message', { message, block: 0, delta: text }],
    ['agent.message', { message, end: true, stopReason, errorMessage: null }],
  ];
}

/** The events of a run that ends well. */
export const successOf = (text: string): [EventType, Record<string, unknown>][] => [
  ['runner.finished', { verdict: 'ok', text }],
  ['work_unit.succeeded', { errorCode: null, errorMessage: null }],
];
