/** Turns over a real store: one at a time for an issue, interrupted by prompts, ended by stops. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { timestamp } from '../../src/domain/ids.ts';
import { createLinearAgent, type Voice } from '../../src/linear/agent.ts';
import { prompted, sessionCreated, type TurnContext } from '../../src/linear/turns.ts';
import type { LinearTurnRow, SessionFacts } from '../../src/store/linear-turns.ts';
import { cancel, interrupt } from '../../src/supervisor/end.ts';
import { submit } from '../../src/supervisor/submit.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

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

/** The agent over a store, its voice written down, its work ended by hand. */
class Bench {
  readonly rig = new QueueRig(open(), { provider: { default: 4 }, runner: { pi: 4 } });
  readonly acknowledged: string[] = [];
  readonly said: { readonly turn: string; readonly text: string }[] = [];
  readonly confirmed: string[] = [];
  /** Terminal activities that are not out yet. */
  readonly unsent = new Set<string>();
  holdsBack = false;
  /** A session whose place is never found. */
  stuck = '';

  readonly voice: Voice = {
    follow: () => undefined,
    conclude: ({ id, workUnitId }) => {
      const status = this.rig.store.workUnits.get(workUnitId ?? '')?.status ?? 'gone';
      this.#say(id, status);
    },
    fail: ({ id }, message) => this.#say(id, message),
    askForHelp: ({ id }, message) => this.#say(id, message),
    isSettled: ({ id }) => !this.unsent.has(id),
  };

  #say(turn: string, text: string): void {
    if (this.said.some((one) => one.turn === turn)) return;
    this.said.push({ turn, text });
    if (this.holdsBack) this.unsent.add(turn);
  }

  readonly #sessions = temporaryDirectory();

  readonly agent = createLinearAgent({
    context: {
      ...this.rig.context,
      settings: { ...this.rig.context.settings, sessionsDirectory: this.#sessions },
    },
    supervisor: {
      submit: (input, options) => submit(this.rig.context, input, options),
      interrupt: (id, request) => interrupt(this.rig.context, id, request),
      cancel: (id, request) => cancel(this.rig.context, id, request),
    },
    voice: this.voice,
    place: async ({ id }) => {
      if (id === this.stuck) await new Promise(() => undefined);
      return { kind: 'ready', cwd: '/' };
    },
    request: {},
  });

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

  created(id: string, prompt = `about ${id}`, issue: string | null = 'issue-1'): void {
    this.rig.entropy.advance(1);
    const { writer } = this.rig.context;
    const facts = session(id, issue);
    this.agent.obey(writer.commit((t) => sessionCreated(this.turns, t, facts, prompt)));
  }

  prompt(id: string, body: string, activityId = `activity of ${body}`, isStop = false): void {
    this.rig.entropy.advance(1);
    const said = { activityId, body, isStop };
    const { writer } = this.rig.context;
    this.agent.obey(writer.commit((t) => prompted(this.turns, t, session(id), said)));
  }

  stop(id: string, activityId = `stop of ${id}`): void {
    this.prompt(id, '', activityId, true);
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

  /** The work is claimed and seen to run; its wrapper has opened the spool, and Pi has its prompt. */
  run(): void {
    this.runUnheard();
    this.hear();
  }

  /** Pi writes a prompt down as soon as it has it. */
  hear(): void {
    const { conversation } = this.rig.store.workUnits.get(this.work) ?? {};
    const file = path.join(this.#sessions, conversation ?? '', 'session.jsonl');
    const at = timestamp(this.rig.entropy);
    const message = { role: 'user', content: this.promptOfWork() };
    const lines = [
      { type: 'session', cwd: '/' },
      { type: 'message', id: 'a', parentId: null, timestamp: at, message },
    ];
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  }

  /** It runs, and is not as far as that. */
  runUnheard(): void {
    this.rig.claimAll();
    this.rig.run(this.work);
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
}

describe('a session', () => {
  it('whose place is long in coming holds no other issue up', async () => {
    const bench = new Bench();
    bench.stuck = 's1';
    bench.created('s1', 'fix it', 'issue-1');
    void bench.agent.look();
    bench.created('s2', 'look at it', 'issue-2');
    void bench.agent.look();
    await expect.poll(() => bench.states('s2')).toEqual(['running']);
    expect(bench.states('s1')).toEqual(['pending']);
  });

  it('becomes one turn with one work unit, and one answer; row 166', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    bench.created('s1', 'fix it');
    await bench.settle();
    expect(bench.acknowledged).toEqual(['s1']);
    expect(bench.states()).toEqual(['running']);
    bench.run();
    const work = bench.work;
    expect(bench.rig.store.workUnits.get(work)).toMatchObject({
      kind: 'external_work_step',
      conversation: 'linear-s1',
      externalSubject: 'linear:issue-1',
    });
    bench.rig.end(work);
    await bench.settle();
    expect(bench.said.map(({ text }) => text)).toEqual(['succeeded']);
    expect(bench.states()).toEqual(['done']);
  });

  it('that we made ourselves starts nothing; bug 2', async () => {
    const bench = new Bench();
    const own = { ...session('own'), own: true };
    bench.rig.context.writer.commit((t) => sessionCreated(bench.turns, t, own, 'x'));
    await bench.settle();
    expect(bench.all()).toEqual([]);
  });

  it('X08: whose prompt comes first is held, and joined in order', async () => {
    const bench = new Bench();
    bench.prompt('s1', 'second');
    bench.prompt('s1', 'third');
    await bench.settle();
    expect(bench.states()).toEqual(['held', 'held']);
    bench.created('s1', 'first');
    await bench.settle();
    expect(bench.states()).toEqual(['done', 'done', 'running']);
    expect(bench.promptOfWork()).toBe('first\n\nsecond\n\nthird');
  });

  it('X07: of another issue runs beside it, of the same one after it', async () => {
    const bench = new Bench();
    bench.created('s1');
    bench.created('s2');
    bench.created('s3', 'elsewhere', 'issue-2');
    await bench.settle();
    expect([bench.states('s1'), bench.states('s2'), bench.states('s3')]).toEqual([
      ['running'],
      ['pending'],
      ['running'],
    ]);
    expect(bench.acknowledged, 'heard at once, also where it waits').toEqual(['s1', 's2', 's3']);
  });

  it('X05: the next turn of an issue waits until the last word of the one before is out', async () => {
    const bench = new Bench();
    bench.holdsBack = true;
    bench.created('s1');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    bench.prompt('s1', 'more');
    await bench.settle();
    expect(bench.states()).toEqual(['awaiting_activity', 'pending']);
    bench.unsent.clear();
    await bench.settle();
    expect(bench.states()).toEqual(['done', 'running']);
  });
});

describe('a prompt', () => {
  it('AC4, row 200, row 203: interrupts the turn that runs, and is answered next in the same conversation', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.run();
    const first = bench.work;
    bench.prompt('s1', 'no, the other one');
    const interrupted = bench.rig.store.workUnits.get(first);
    expect(interrupted?.status).toBe('cancelling');
    expect(bench.rig.active(first).intent).toMatchObject({ kind: 'interrupt' });
    bench.endCancelled(first);
    await bench.settle();
    expect(bench.states()).toEqual(['interrupted', 'running']);
    expect(bench.promptOfWork(), 'the conversation has the rest').toBe('no, the other one');
    expect(bench.rig.store.workUnits.get(bench.work)?.conversation).toBe('linear-s1');
    // AC5, row 201: nothing was said about the interrupted one.
    expect(bench.said).toEqual([]);
  });

  it('carries the words of a turn that never ran', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.prompt('s1', 'quickly');
    await bench.settle();
    expect(bench.states()).toEqual(['interrupted', 'running']);
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly');
  });

  it('carries the words of a turn that ran and was interrupted before the agent had them', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.runUnheard();
    bench.prompt('s1', 'quickly');
    // The second takes the place of the first, which took that of the turn that ran.
    bench.prompt('s1', 'and quietly');
    bench.endCancelled(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly\n\nand quietly');
    bench.runUnheard();
    bench.prompt('s1', 'please');
    bench.endCancelled(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly\n\nand quietly\n\nplease');
    bench.run();
    bench.prompt('s1', 'thanks');
    bench.endCancelled(bench.work);
    await bench.settle();
    expect(bench.promptOfWork(), 'all of it was heard').toBe('thanks');
  });

  it('that joins a turn which waits to be gone on with carries its words where nobody heard them', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.runUnheard();
    bench.created('s2', 'wait');
    bench.prompt('s2', 'look at this');
    bench.prompt('s1', 'quickly');
    bench.endCancelled(bench.work);
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toMatch(/^fix it\n\nYou were interrupted.*quickly$/s);
  });

  it('in another session of the issue comes first; the interrupted one is gone on with, once', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.run();
    bench.created('s2', 'wait');
    bench.prompt('s2', 'look at this');
    bench.endCancelled(bench.work);
    await bench.settle();
    expect(bench.states('s1')).toEqual(['interrupted', 'pending']);
    expect(bench.promptOfWork()).toBe('wait\n\nlook at this');
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    expect(bench.states('s1')).toEqual(['interrupted', 'running']);
    expect(bench.promptOfWork()).toMatch(/^You were interrupted/);
  });

  it('that comes in a burst is one turn, in order, and none is lost; the same again changes nothing', async () => {
    const bench = new Bench();
    bench.created('s1', 'one');
    await bench.settle();
    bench.run();
    for (const body of ['two', 'three', 'four', 'three']) bench.prompt('s1', body);
    bench.endCancelled(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('two\n\nthree\n\nfour');
    expect(bench.states().filter((state) => state === 'running')).toHaveLength(1);
  });
});

describe('a stop', () => {
  it('X09: cancels what runs and what waits, is answered once, and the next prompt works', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const work = bench.work;
    bench.stop('s1');
    bench.stop('s1');
    expect(bench.rig.active(work).intent).toMatchObject({ kind: 'cancel' });
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.said.map(({ text }) => text)).toEqual(['cancelled']);
    expect(bench.confirmed).toEqual([]);
    bench.prompt('s1', 'again please');
    await bench.settle();
    expect(bench.states()).toContain('running');
    expect(bench.promptOfWork()).toBe('again please');
    // Seen again by a sweep, long after: it is over.
    bench.stop('s1');
    await bench.settle();
    expect(bench.rig.store.workUnits.get(bench.work)?.status).toBe('queued');
  });

  it('bug 25: that comes before the session is known keeps it from starting', async () => {
    const bench = new Bench();
    bench.stop('s1');
    bench.created('s1');
    await bench.settle();
    expect(bench.states()).toEqual(['stopped', 'stopped']);
    expect(bench.confirmed).toEqual(['prompted:stop of s1']);
    bench.prompt('s1', 'now');
    await bench.settle();
    expect(bench.promptOfWork()).toBe('now');
  });

  it('that meets a turn which a prompt has interrupted is answered all the same', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const work = bench.work;
    bench.created('s2');
    bench.prompt('s2', 'look at this');
    bench.stop('s1');
    bench.endCancelled(work);
    await bench.settle();
    // What was interrupted says nothing when it ends.
    expect(bench.said).toEqual([]);
    expect(bench.confirmed).toEqual(['prompted:stop of s1']);
    expect(bench.states('s1')).toEqual(['interrupted', 'stopped', 'stopped']);
  });

  it('holds for a turn that has not ended when somebody writes in another session of the issue', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const work = bench.work;
    bench.created('s2');
    bench.stop('s1');
    bench.prompt('s2', 'look at this');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.said.map(({ text }) => text)).toEqual(['cancelled']);
    expect(bench.states('s1'), 'nothing of it is gone on with').toEqual(['stopped', 'stopped']);
    expect(bench.promptOfWork()).toBe('about s2\n\nlook at this');
  });

  it('of one session leaves the other of the same issue alone', async () => {
    const bench = new Bench();
    bench.created('s1');
    bench.created('s2');
    await bench.settle();
    bench.stop('s2');
    await bench.settle();
    expect([bench.states('s1'), bench.states('s2')]).toEqual([['running'], ['stopped', 'stopped']]);
  });
});
