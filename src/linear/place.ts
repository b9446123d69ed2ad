/** Where a session's turns work: routed once for an issue, its tree made and set up before anything. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import type { LinearRepository } from '../domain/linear-repositories.ts';
import { startWorkUnitSchema } from '../domain/request.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { LinearSessionRow, LinearTurnRow } from '../store/linear-turns.ts';
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { createSpeech } from './activities.ts';
import type { Place } from './agent.ts';
import type { BranchedIssue } from './branch-name.ts';
import { changeIssue, say } from './enqueue.ts';
import type { Outbox } from './outbox.ts';
import { type IssueFacts, type LinearApi, LinearError } from './port.ts';
import { type RouteOption, type Routing, readAnswer, route } from './routing.ts';
import { refusalOf } from './turn-request.ts';
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

/** The repository an issue was given, or for which turns a person was asked for it, and since when. */
const routedSchema = z.object({
  path: z.string().nullable(),
  askedBy: z.array(z.string()),
  askedAt: z.string().nullable(),
});
type Routed = z.infer<typeof routedSchema>;
const triesSchema = z.object({ failed: z.int() });

/** Somebody may have answered with a label: Linear is asked again. */
const ASK_AGAIN_MS = 10 * 60_000;
/** So many turns are remembered to have been asked. */
const ASKED = 50;

/** States of an issue that are left as they are: begun, over, or not accepted yet. */
const LEFT: ReadonlySet<string> = new Set(['started', 'completed', 'canceled', 'triage']);

const NO_ISSUE =
  'The issue is not there, or the app may not see its team. Give it access in the settings of Linear, and write here again.';

/** A repository that somebody is busy with is tried again; anything else a person has to mend. */
const isNoTree = (error: unknown): error is OutliveError =>
  error instanceof OutliveError &&
  error.code === 'work_tree_unavailable' &&
  error.extra['reason'] !== 'repository_busy';

const routeOf = ({ channelKey }: Pick<LinearSessionRow, 'channelKey'>): string =>
  `route ${channelKey}`;

/** See {@link Place}. */
export class Places {
  readonly #parts: PlaceParts;

  constructor(parts: PlaceParts) {
    this.#parts = parts;
  }

  /** Repeatable; what it asked or began before is not asked or begun again. */
  readonly of = async (session: LinearSessionRow, turn: LinearTurnRow): Promise<Place> => {
    try {
      const issue = await this.#issue(session);
      // Stopped meanwhile, or joined by words that may say where: nothing more is done for it.
      if (!this.#isWaiting(turn)) return { kind: 'waits', isOver: () => true };
      if (issue === 'unknown') return await this.#without(session, turn);
      if (issue) await this.#take(session, issue);
      if (issue === null && session.issueId !== null && this.#parts.routing.repositories.length > 0)
        return { kind: 'failed', message: NO_ISSUE };
      const found = this.#repository(session, turn, issue);
      if (found === 'asked') return this.#asked(session);
      if (found === null || issue === null) return { kind: 'ready', cwd: this.#plainDirectory() };
      return await this.#tree(session, turn, { issue, repository: found });
    } catch (error) {
      return this.#failed(error);
    }
  };

  #isWaiting({ id }: LinearTurnRow): boolean {
    return this.#parts.context.store.linear.turn(id)?.state === 'pending';
  }

  #asked(session: LinearSessionRow): Place {
    const { entropy } = this.#parts.context;
    const again = entropy.monotonic() + ASK_AGAIN_MS;
    // An answer may come in any thread of the issue.
    const isOver = (): boolean => this.#known(session) !== null || entropy.monotonic() >= again;
    return { kind: 'waits', isOver };
  }

  /** `unknown` while Linear cannot be asked, and work could begin all the same. */
  async #issue(session: LinearSessionRow): Promise<IssueFacts | null | 'unknown'> {
    const { api, routing } = this.#parts;
    if (session.issueId === null) return null;
    try {
      return await api.issue(session.issueId);
    } catch (error) {
      if (!(error instanceof LinearError) || error.problem.kind === 'rejected') throw error;
      const isPlaced = routing.repositories.length === 0 || this.#known(session) !== null;
      if (!isPlaced) throw error;
      return 'unknown';
    }
  }

  /** The issue's place is decided: what Linear has to say of it can wait for the next turn. */
  async #without(session: LinearSessionRow, turn: LinearTurnRow): Promise<Place> {
    const repository = this.#known(session);
    if (repository === null) return { kind: 'ready', cwd: this.#plainDirectory() };
    const { identifier } = session;
    const issue = { identifier, branchName: null };
    return this.#tree(session, turn, { issue, repository });
  }

  #plainDirectory(): string {
    const { routing, context } = this.#parts;
    return routing.cwd ?? context.settings.home;
  }

  #failed(error: unknown): Place {
    if (error instanceof LinearError && error.problem.kind !== 'rejected') throw error;
    if (error instanceof LinearError) return { kind: 'failed', message: error.message };
    const refusal = isNoTree(error) ? error.message : refusalOf(error);
    if (refusal === null) throw error;
    return { kind: 'failed', message: refusal };
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

  #routed(session: LinearSessionRow): Routed {
    const known = routedSchema.safeParse(this.#fact(routeOf(session)));
    return known.success ? known.data : { path: null, askedBy: [], askedAt: null };
  }

  /** The repository the issue was given before; null when there was none, or it is gone. */
  #known(session: LinearSessionRow): LinearRepository | null {
    const { path } = this.#routed(session);
    return this.#parts.routing.repositories.find((one) => one.path === path) ?? null;
  }

  /** Null where work is done in a plain directory. */
  #repository(
    session: LinearSessionRow,
    turn: LinearTurnRow,
    issue: IssueFacts | null,
  ): LinearRepository | null | 'asked' {
    const { routing } = this.#parts;
    const name = routeOf(session);
    const before = this.#routed(session);
    const kept = this.#known(session);
    if (kept) return kept;
    const found = route(issue, routing);
    if (found.kind === 'directory') return null;
    const chosen =
      found.kind === 'repository'
        ? found.repository
        : this.#answered(session, before, found.options);
    if (chosen) {
      this.#put(name, { ...before, path: chosen.path } satisfies Routed);
      return chosen;
    }
    // Once for each turn: whoever wrote something else is asked again, in their own thread.
    if (found.kind === 'ask' && !before.askedBy.includes(turn.id)) {
      this.#ask(session, turn, { ...found, before });
    }
    return 'asked';
  }

  /** The newest prompt that names one of the repositories, of those that came after the question. */
  #answered(
    session: LinearSessionRow,
    { askedAt, askedBy }: Routed,
    options: readonly RouteOption[],
  ): LinearRepository | null {
    const { context, routing } = this.#parts;
    if (askedAt === null) return null;
    const { linear } = context.store;
    const turns = [
      ...linear.turnsOfSession(session.id),
      ...linear.openOfChannel(session.channelKey),
    ];
    const said = turns.filter(({ id, kind, state, createdAt }) => {
      const isPrompt = kind === 'prompted' && state !== 'stopped';
      return isPrompt && id !== askedBy[0] && createdAt >= askedAt;
    });
    for (const { prompt } of said.toReversed()) {
      const answer = readAnswer(prompt, options, routing);
      if (answer) return answer;
    }
    return null;
  }

  #ask(
    session: LinearSessionRow,
    turn: LinearTurnRow,
    {
      question,
      options,
      before,
    }: Extract<ReturnType<typeof route>, { kind: 'ask' }> & { readonly before: Routed },
  ): void {
    const { context, outbox, names } = this.#parts;
    const content = createSpeech(names).asking(question);
    const said = { content, signal: 'select', signalMetadata: { options } } as const;
    const to = { sessionId: session.id, turnId: null };
    context.writer.commit(({ at }) => {
      say(context, at, to, said, true);
      const askedBy = [...before.askedBy, turn.id].slice(-ASKED);
      const value: Routed = { path: null, askedBy, askedAt: before.askedAt ?? at };
      context.store.linearFacts.put(routeOf(session), value, at);
    });
    outbox.wake();
  }

  async #tree(
    session: LinearSessionRow,
    turn: LinearTurnRow,
    {
      issue,
      repository,
    }: { readonly issue: Omit<BranchedIssue, 'key'>; readonly repository: LinearRepository },
  ): Promise<Place> {
    const { worktrees, context } = this.#parts;
    const { identifier, branchName } = issue;
    const named = { key: session.channelKey, identifier, branchName };
    const tree = await worktrees.ensure(repository, named);
    if (session.workTree !== tree.path) context.store.linear.setWorkTree(session.id, tree.path);
    // Nothing is set up for a turn that nobody waits for any more.
    return tree.setup === null || !this.#isWaiting(turn)
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
    // Once for each time that somebody wrote after it had failed.
    const tries = `setup ${channelKey}`;
    const before = triesSchema.safeParse(this.#fact(tries)).data?.failed ?? 0;
    const what = createHash('sha256').update(JSON.stringify([tree.path, tree.made, argv]));
    const idempotencyKey = `linear-setup ${what.digest('hex').slice(0, 32)} ${before}`;
    const { workUnit } = supervisor.submit(input, { idempotencyKey, actor: 'system' });
    const now = context.store.workUnits.get(workUnit.id) ?? workUnit;
    const isOver = (id: string): boolean => {
      const status = context.store.workUnits.statusOf(id);
      return status === null || TERMINAL_STATUSES.has(status);
    };
    if (!isOver(workUnit.id)) return { kind: 'waits', isOver: () => isOver(workUnit.id) };
    if (now.status !== 'succeeded') {
      const why = now.errorMessage ?? now.status;
      this.#put(tries, { failed: before + 1 });
      const message = `Setting up its work tree failed: ${why}. See \`outlive logs ${now.handle}\`, and write here to try it again.`;
      return { kind: 'failed', message };
    }
    await worktrees.markSetUp(channelKey);
    return { kind: 'ready', cwd: tree.path };
  }
}
