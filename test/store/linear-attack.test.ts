/** Turns under attack: what interrupts, stops and crashes do to each other. */
import { afterEach, describe, expect, it } from 'vitest';
import type { ResumeNote } from '../../src/domain/resume.ts';
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
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open } from './rig.ts';

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

class Bench {
  readonly rig = new QueueRig(open(), { provider: { default: 4 }, runner: { pi: 4 } });
  readonly said: { readonly turn: string; readonly text: string }[] = [];
  readonly confirmed: string[] = [];
  /** Dies right after the work was submitted. */
  diesAfterSubmit = false;
  place: LinearAgentOptions['place'] = () => Promise.resolve({ kind: 'ready', cwd: '/' });

  readonly voice: Voice = {
    follow: () => undefined,
    conclude: ({ id, workUnitId }) =>
      this.#say(id, this.rig.store.workUnits.get(workUnitId ?? '')?.status ?? 'gone'),
    fail: ({ id }, message) => this.#say(id, message),
    askForHelp: ({ id }, message) => this.#say(id, message),
    isSettled: () => true,
  };

  #say(turn: string, text: string): void {
    if (!this.said.some((one) => one.turn === turn)) this.said.push({ turn, text });
  }

  agent: LinearAgent = this.restart();

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
      place: (row) => this.place(row),
      request: {},
    });
    return this.agent;
  }

  readonly turns: TurnContext = {
    store: this.rig.store,
    entropy: this.rig.entropy,
    ear: {
      acknowledge: () => undefined,
      confirmStop: (_transaction, _session, source) => this.confirmed.push(source),
    },
  };

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

  async settle(): Promise<void> {
    for (let times = 0; times < 3; times++) await this.agent.look();
  }

  all(): LinearTurnRow[] {
    const { linear } = this.rig.store;
    return linear.listSessions().flatMap(({ id }) => linear.turnsOfSession(id));
  }

  states(id: string): string[] {
    return this.rig.store.linear.turnsOfSession(id).map(({ state }) => state);
  }

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

  claim(): void {
    this.rig.claimAll();
    this.rig.run(this.work);
  }

  run(): void {
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
    const { linear } = this.rig.store;
    const turns = new Set(linear.turnsOfSession(id).map((turn) => turn.id));
    const sources = new Set(linear.turnsOfSession(id).map(({ sourceKey }) => sourceKey));
    return [
      ...this.said.filter(({ turn }) => turns.has(turn)).map(({ text }) => text),
      ...this.confirmed.filter((source) => sources.has(source)).map(() => 'Stopped'),
    ];
  }
}

describe('no word is lost', () => {
  it('of three that were said while none could begin', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.prompt('s1', 'quickly');
    await bench.settle();
    bench.prompt('s1', 'and well');
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly\n\nand well');
  });

  it('of a turn that never ran, whose continuation is joined by a prompt', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.created('s2', 'look');
    bench.prompt('s2', 'now');
    await bench.settle();
    bench.prompt('s1', 'quickly');
    await bench.settle();
    expect(bench.promptOfWork()).toContain('fix it');
    expect(bench.promptOfWork()).toContain('quickly');
  });

  it('of a turn that never ran, whose continuation is interrupted before it ran', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.created('s2', 'look');
    bench.prompt('s2', 'now');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toContain('fix it');
    bench.prompt('s2', 'once more');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    expect(bench.states('s1').at(-1)).toBe('running');
    expect(bench.promptOfWork()).toContain('fix it');
  });

  it('where the continuation that began is interrupted by its own session before it ran', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.created('s2', 'look');
    bench.prompt('s2', 'now');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    bench.prompt('s1', 'quickly');
    await bench.settle();
    expect(bench.promptOfWork()).toContain('fix it');
  });
});

describe('what a turn leaves to the one after it', () => {
  it('is its prompt where it was lost before its conversation held that', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.run();
    const work = bench.work;
    const attempt = bench.rig.active(work);
    const resume: ResumeNote = {
      attemptId: attempt.id,
      attemptNumber: 1,
      cause: 'host_shutdown',
      lostAt: attempt.createdAt,
      open: [],
      finished: [],
      notRun: [],
      conversation: false,
    };
    bench.rig.store.workUnits.patch(work, { resume }, attempt.createdAt);
    bench.prompt('s1', 'quickly');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.promptOfWork()).toContain('fix it');
  });
});

describe('a stop', () => {
  it('right after a prompt that interrupted is answered', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const work = bench.work;
    bench.prompt('s1', 'other');
    bench.stop('s1');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.lastWords('s1')).toHaveLength(1);
  });

  it('of a session that another one interrupted is answered, and nothing goes on', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const work = bench.work;
    bench.created('s2');
    bench.prompt('s2', 'other');
    bench.stop('s1');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.states('s1')).not.toContain('pending');
    expect(bench.lastWords('s1')).toHaveLength(1);
  });

  it('is not undone by a prompt in another session while it is carried out', async () => {
    const bench = new Bench();
    bench.created('s1');
    bench.created('s2');
    await bench.settle();
    bench.run();
    const work = bench.work;
    bench.stop('s1');
    bench.prompt('s2', 'other');
    bench.endCancelled(work);
    await bench.settle();
    expect.soft(bench.lastWords('s1')).toHaveLength(1);
    bench.run();
    bench.rig.end(bench.work);
    await bench.agent.look();
    await bench.agent.look();
    expect(bench.states('s1')).not.toContain('pending');
    expect(bench.states('s1')).not.toContain('running');
  });

  it('of what never ran is not undone by the next prompt', async () => {
    const bench = new Bench();
    bench.created('s1', 'delete everything');
    await bench.settle();
    bench.claim();
    const work = bench.work;
    bench.stop('s1');
    bench.prompt('s1', 'hello');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('hello');
  });
});

describe('a daemon that dies between submit and the turn that says so', () => {
  it('does not answer a prompt twice', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    bench.diesAfterSubmit = true;
    await bench.settle();
    bench.diesAfterSubmit = false;
    bench.restart();
    bench.prompt('s1', 'quickly');
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly');
    expect(bench.liveWork()).toHaveLength(1);
  });

  it('cancels it all the same when a stop was waiting', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    bench.diesAfterSubmit = true;
    await bench.settle();
    bench.diesAfterSubmit = false;
    bench.restart();
    bench.stop('s1');
    await bench.settle();
    expect(bench.liveWork()).toEqual([]);
  });
});

describe('placing', () => {
  it('a directory that is gone is told', async () => {
    const bench = new Bench();
    bench.place = () => Promise.resolve({ kind: 'ready', cwd: '/nowhere at all' });
    bench.created('s1', 'fix it');
    await bench.settle();
    expect(bench.lastWords('s1')).toHaveLength(1);
  });

  it('that takes long for one issue holds no other up', async () => {
    const bench = new Bench();
    bench.place = ({ id }) =>
      id === 's1' ? new Promise(() => undefined) : Promise.resolve({ kind: 'ready', cwd: '/' });
    bench.created('s1', 'fix it', 'issue-1');
    bench.agent.start();
    await new Promise((resolve) => setTimeout(resolve, 50));
    bench.created('s2', 'fix it', 'issue-2');
    await expect.poll(() => bench.states('s2')).toEqual(['running']);
  });

  it('that takes long does not hold a shutdown up', async () => {
    const bench = new Bench();
    bench.place = () => new Promise(() => undefined);
    bench.created('s1', 'fix it');
    bench.agent.start();
    let isClosed = false;
    void bench.agent.close().then(() => {
      isClosed = true;
    });
    await expect.poll(() => isClosed).toBe(true);
  });
});
