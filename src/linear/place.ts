/** Where a session's turns work: routed once for an issue, its tree made and set up before anything. */
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import type { LinearRepository } from '../domain/linear-repositories.ts';
import { startWorkUnitSchema } from '../domain/request.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { LinearSessionRow } from '../store/linear-turns.ts';
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { createSpeech } from './activities.ts';
import type { Place } from './agent.ts';
import { changeIssue, say } from './enqueue.ts';
import type { Outbox } from './outbox.ts';
import { type IssueFacts, type LinearApi, LinearError } from './port.ts';
import { type RouteOption, type Routing, readAnswer, route } from './routing.ts';
import type { Tree, Worktrees } from './worktrees.ts';

export interface PlaceParts {
  readonly context: Context;
  readonly supervisor: Pick<Supervisor, 'submit'>;
  readonly api: Pick<LinearApi, 'issue' | 'startedState' | 'viewer'>;
  readonly outbox: Pick<Outbox, 'wake'>;
  readonly worktrees: Worktrees;
  readonly routing: Routing;
  readonly names: readonly string[];
}

const routedSchema = z.object({ path: z.string().nullable(), asked: z.boolean() });
type Routed = z.infer<typeof routedSchema>;

/** States of an issue that are left as they are: begun, over, or not accepted yet. */
const LEFT: ReadonlySet<string> = new Set(['started', 'completed', 'canceled', 'triage']);

/** See {@link Place}. */
export class Places {
  readonly #parts: PlaceParts;

  constructor(parts: PlaceParts) {
    this.#parts = parts;
  }

  /** Repeatable; what it asked or began before is not asked or begun again. */
  readonly of = async (session: LinearSessionRow): Promise<Place> => {
    try {
      const issue = session.issueId === null ? null : await this.#parts.api.issue(session.issueId);
      if (issue) await this.#take(session, issue);
      const found = this.#repository(session, issue);
      if (found === 'asked') return { kind: 'asked' };
      if (found === null || issue === null) return { kind: 'ready', cwd: this.#plainDirectory() };
      return await this.#tree(session, issue, found);
    } catch (error) {
      return this.#failed(error);
    }
  };

  #plainDirectory(): string {
    const { routing, context } = this.#parts;
    return routing.cwd ?? context.settings.home;
  }

  #failed(error: unknown): Place {
    if (error instanceof LinearError && error.problem.kind !== 'rejected') throw error;
    if (!(error instanceof OutliveError) && !(error instanceof LinearError)) throw error;
    return { kind: 'failed', message: error.message };
  }

  #fact(name: string): unknown {
    return this.#parts.context.store.linearFacts.get(name)?.value ?? null;
  }

  #put(name: string, value: unknown): void {
    const { writer, store } = this.#parts.context;
    writer.commit(({ at }) => store.linearFacts.put(name, value, at));
  }

  /** Work begins: the issue is moved to its first started state, and is ours if it is nobody's. */
  async #take(session: LinearSessionRow, issue: IssueFacts): Promise<void> {
    const name = `taken ${issue.id}`;
    if (this.#fact(name) !== null) return;
    const { api, context, outbox } = this.#parts;
    const stateId = LEFT.has(issue.state.type) ? null : await api.startedState(issue.team.id);
    const delegateId = issue.delegateId === null ? (await api.viewer()).id : null;
    const change = { ...(stateId ? { stateId } : {}), ...(delegateId ? { delegateId } : {}) };
    const to = { sessionId: session.id, turnId: null };
    context.writer.commit(({ at }) => {
      context.store.linearFacts.put(name, change, at);
      if (Object.keys(change).length === 0) return;
      changeIssue(context, at, to, { issueId: issue.id, ...change });
    });
    outbox.wake();
  }

  /** Null where work is done in a plain directory. */
  #repository(
    session: LinearSessionRow,
    issue: IssueFacts | null,
  ): LinearRepository | null | 'asked' {
    const { routing } = this.#parts;
    const name = `route ${session.channelKey}`;
    const known = routedSchema.safeParse(this.#fact(name));
    const before: Routed = known.success ? known.data : { path: null, asked: false };
    const kept = routing.repositories.find(({ path }) => path === before.path);
    if (kept) return kept;
    const found = route(issue, routing);
    if (found.kind === 'directory') return null;
    const chosen =
      found.kind === 'repository' ? found.repository : this.#answered(session, found.options);
    if (chosen) {
      this.#put(name, { path: chosen.path, asked: before.asked } satisfies Routed);
      return chosen;
    }
    if (!before.asked && found.kind === 'ask') this.#ask(session, found);
    return 'asked';
  }

  /** The newest prompt that names one of the repositories it was asked about. */
  #answered(session: LinearSessionRow, options: readonly RouteOption[]): LinearRepository | null {
    const { context, routing } = this.#parts;
    const said = context.store.linear.openOfChannel(session.channelKey).toReversed();
    for (const { prompt } of said) {
      const lines = prompt.split('\n\n').toReversed();
      for (const line of lines) {
        const answer = readAnswer(line, options, routing);
        if (answer) return answer;
      }
    }
    return null;
  }

  #ask(
    session: LinearSessionRow,
    { question, options }: Extract<ReturnType<typeof route>, { kind: 'ask' }>,
  ): void {
    const { context, outbox, names } = this.#parts;
    const content = createSpeech(names).asking(question);
    const said = { content, signal: 'select', signalMetadata: { options } } as const;
    const to = { sessionId: session.id, turnId: null };
    context.writer.commit(({ at }) => {
      say(context, at, to, said, true);
      const value = { path: null, asked: true } satisfies Routed;
      context.store.linearFacts.put(`route ${session.channelKey}`, value, at);
    });
    outbox.wake();
  }

  async #tree(
    session: LinearSessionRow,
    issue: IssueFacts,
    repository: LinearRepository,
  ): Promise<Place> {
    const { worktrees, context } = this.#parts;
    const tree = await worktrees.ensure(repository, { ...issue, key: session.channelKey });
    if (session.workTree !== tree.path) context.store.linear.setWorkTree(session.id, tree.path);
    return tree.setup === null
      ? { kind: 'ready', cwd: tree.path }
      : this.#setUp(session.channelKey, tree, tree.setup);
  }

  /** Its set-up command is work like any other: seen, bounded, cancelled. */
  async #setUp(channelKey: string, tree: Tree, argv: readonly string[]): Promise<Place> {
    const { supervisor, worktrees, context } = this.#parts;
    const input = startWorkUnitSchema.parse({
      kind: 'external_work_step',
      ownerType: 'linear_setup',
      ownerId: channelKey,
      createdByClientId: 'linear',
      runnerId: 'command',
      argv: [...argv],
      cwd: tree.path,
      exclusive: true,
    });
    const idempotencyKey = `linear-setup ${tree.path} ${tree.branch}`;
    const { workUnit } = supervisor.submit(input, { idempotencyKey, actor: 'system' });
    const now = context.store.workUnits.get(workUnit.id) ?? workUnit;
    if (!TERMINAL_STATUSES.has(now.status)) return { kind: 'asked' };
    if (now.status !== 'succeeded') {
      const why = now.errorMessage ?? now.status;
      const message = `Setting up its work tree failed: ${why}. See: outlive logs ${now.handle}`;
      return { kind: 'failed', message };
    }
    await worktrees.markSetUp(channelKey);
    return { kind: 'ready', cwd: tree.path };
  }
}
