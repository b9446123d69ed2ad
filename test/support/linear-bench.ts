/** The Linear agent over a real store, its voice written down, its work ended by hand. */
import { appendFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import {
  createLinearAgent,
  type LinearAgent,
  type LinearAgentOptions,
  type Voice,
} from '../../src/linear/agent.ts';
import { prompted, sessionCreated, type TurnContext } from '../../src/linear/turns.ts';
import type { LinearTurnRow, SessionFacts } from '../../src/store/linear-turns.ts';
import { cancel, interrupt } from '../../src/supervisor/end.ts';
import { submit } from '../../src/supervisor/submit.ts';
import { open, temporaryDirectory } from '../store/rig.ts';
import { QueueRig } from './core-queue.ts';

const session = (id: string, issue: string | null = 'issue-1'): SessionFacts => ({
  id,
  organizationId: 'org',
  channelKey: issue ?? id,
  issueId: issue,
  identifier: issue,
  title: null,
  url: null,
  teamId: null,
  creatorId: 'ada',
  known: true,
  own: false,
});

/** A rig whose conversations lie in a directory of their own. */
function queueRig(): QueueRig {
  const rig = new QueueRig(open(), { provider: { default: 4 }, runner: { pi: 4 } });
  const settings = { ...rig.context.settings, sessionsDirectory: temporaryDirectory() };
  return Object.assign(rig, { context: { ...rig.context, settings } });
}

export class Bench {
  readonly rig = queueRig();
  readonly acknowledged: string[] = [];
  readonly said: { readonly turn: string; readonly text: string }[] = [];
  readonly confirmed: string[] = [];
  /** Terminal activities that are not out yet. */
  readonly unsent = new Set<string>();
  holdsBack = false;
  /** Dies right after the work was submitted. */
  diesAfterSubmit = false;
  place: LinearAgentOptions['place'] = () => Promise.resolve({ kind: 'ready', cwd: '/' });

  readonly voice: Voice = {
    wait: () => undefined,
    follow: () => undefined,
    conclude: ({ id, workUnitId, interruptedBy }) => {
      const status = this.rig.store.workUnits.get(workUnitId ?? '')?.status ?? 'gone';
      if (interruptedBy === null) this.#say(id, status);
    },
    fail: (_transaction, { id }, message) => this.#say(id, message),
    askForHelp: (_transaction, { id }, message) => this.#say(id, message),
    forget: () => undefined,
    isSettled: ({ id }) => !this.unsent.has(id),
  };

  #say(turn: string, text: string): void {
    if (this.said.some((one) => one.turn === turn)) return;
    this.said.push({ turn, text });
    if (this.holdsBack) this.unsent.add(turn);
  }

  agent: LinearAgent = this.restart();

  /** As the next daemon would begin. */
  restart(): LinearAgent {
    this.agent = createLinearAgent({
      context: this.rig.context,
      supervisor: {
        submit: (input, options) => {
          const done = submit(this.rig.context, input, options);
          if (this.diesAfterSubmit) throw new Error('killed');
          return done;
        },
        interrupt: (id, request) => interrupt(this.rig.context, id, request),
        cancel: (id, request) => cancel(this.rig.context, id, request),
      },
      voice: this.voice,
      place: (row, turn) => this.place(row, turn),
      request: {},
    });
    return this.agent;
  }

  readonly turns: TurnContext = {
    store: this.rig.store,
    entropy: this.rig.entropy,
    ear: {
      acknowledge: (_transaction, id) => this.acknowledged.push(id),
      confirmStop: (_transaction, _session, source) => this.confirmed.push(source),
    },
  };

  get rows() {
    return this.rig.store.linear;
  }

  created(
    id: string,
    prompt = `about ${id}`,
    issue: string | null = 'issue-1',
    more: Partial<SessionFacts> = {},
  ): void {
    this.rig.entropy.advance(1);
    const { writer } = this.rig.context;
    const facts = { ...session(id, issue), ...more };
    this.agent.obey(writer.commit((t) => sessionCreated(this.turns, t, facts, prompt)));
  }

  /** @param more `saidAt`: by Linear's clock. */
  prompt(
    id: string,
    body: string,
    activityId = `activity of ${body}`,
    more: { readonly isStop?: boolean; readonly saidAt?: string } = {},
  ): void {
    this.rig.entropy.advance(1);
    const said = { activityId, body, isStop: false, saidAt: null, ...more };
    const { writer } = this.rig.context;
    this.agent.obey(writer.commit((t) => prompted(this.turns, t, session(id), said)));
  }

  stop(id: string, activityId = `stop of ${id}`, saidAt?: string): void {
    const more = saidAt === undefined ? {} : { saidAt };
    this.prompt(id, '', activityId, { isStop: true, ...more });
  }

  /** Lets everything that is due happen. */
  async settle(): Promise<void> {
    for (let times = 0; times < 3; times++) await this.agent.look();
  }

  states(id?: string): string[] {
    const turns = id === undefined ? this.all() : this.rows.turnsOfSession(id);
    return turns.map(({ state }) => state);
  }

  all(): LinearTurnRow[] {
    return this.rows.listSessions().flatMap(({ id }) => this.rows.turnsOfSession(id));
  }

  /** The work of the turn that runs. */
  get work(): string {
    const [running] = this.all().filter(({ state }) => state === 'running');
    if (!running?.workUnitId) throw new Error('no turn runs');
    return running.workUnitId;
  }

  promptOfWork(): string {
    return this.rig.store.workUnits.get(this.work)?.request.prompt ?? '';
  }

  /** Work of Linear's that is not over. */
  liveWork(): string[] {
    return this.rig.store.workUnits
      .list({ activeOnly: true, status: null, beforeId: null, limit: 50 })
      .map(({ status }) => status);
  }

  /** The work is claimed and seen to run. */
  claim(): void {
    this.rig.claimAll();
    this.rig.run(this.work);
  }

  /** The wrapper has opened the spool. */
  open(): void {
    this.claim();
    const opened = {
      attemptId: this.rig.active(this.work).id,
      workUnitId: this.work,
      nonce: 'n',
      invocationId: null,
      bootId: 'b',
      uptimeSeconds: 1,
      pid: 1,
      runner: 'pi',
    };
    this.rig.store.attempts.patch(this.rig.active(this.work).id, { opened });
  }

  /** Pi has taken the prompt, as its session file says. */
  run(): void {
    this.open();
    const { sessionsDirectory } = this.rig.context.settings;
    const { conversation } = this.rig.active(this.work);
    const place = path.join(sessionsDirectory, conversation ?? '');
    const timestamp = new Date(this.rig.entropy.now()).toISOString();
    const content = [{ type: 'text', text: this.promptOfWork() }];
    const lines = [
      { type: 'session', version: 3, id: 's', timestamp, cwd: '/' },
      ...[
        { type: 'message', id: 'm', parentId: null, timestamp, message: { role: 'user', content } },
      ],
    ];
    mkdirSync(place, { recursive: true });
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    appendFileSync(path.join(place, 'session.jsonl'), text);
  }

  /** What was interrupted or cancelled ends as that. */
  endCancelled(workUnitId: string): void {
    const { context, store } = this.rig;
    context.writer.commit((transaction) => {
      const row = transaction.workUnit(workUnitId);
      if (row.activeAttemptId !== null) {
        const attempt = transaction.attempt(row.activeAttemptId);
        transaction.moveAttempt(attempt, 'cancelled', { endedAt: transaction.at });
        store.resources.releaseLeases(attempt.id, 'released', transaction.at, 'cancelled');
        store.resources.releaseSlots(attempt.id, 'released', transaction.at, 'cancelled');
      }
      const patch = { endedAt: transaction.at, activeAttemptId: null };
      transaction.moveWorkUnit(row, 'runner_cancelled', { actor: 'system', patch });
    });
  }

  /** How often a person of the session was told something last. */
  lastWords(id: string): string[] {
    const turns = this.rows.turnsOfSession(id);
    const ids = new Set(turns.map((turn) => turn.id));
    const sources = new Set(turns.map(({ sourceKey }) => sourceKey));
    return [
      ...this.said.filter(({ turn }) => ids.has(turn)).map(({ text }) => text),
      ...this.confirmed.filter((source) => sources.has(source)).map(() => 'Stopped'),
    ];
  }
}
