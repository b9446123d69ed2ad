/** Turns under attack: what interrupts, stops and crashes do to each other. */
import { afterEach, describe, expect, it } from 'vitest';
import type { ResumeNote } from '../../src/domain/resume.ts';
import { Bench } from '../support/linear-bench.ts';
import { cleanUp } from './rig.ts';

afterEach(cleanUp);

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
  it('is its prompt where a prompt came while Pi was starting', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.open();
    const { work } = bench;
    bench.prompt('s1', 'quickly');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly');
  });

  it('is nothing once Pi has it, also where the same words were said before', async () => {
    const bench = new Bench();
    bench.created('s1', 'go on');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    bench.rig.entropy.advance(1_000);
    bench.prompt('s1', 'go on', 'a1');
    await bench.settle();
    bench.open();
    const { work } = bench;
    bench.prompt('s1', 'please', 'a2');
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('go on\n\nplease');
    bench.run();
    const second = bench.work;
    bench.prompt('s1', 'now', 'a3');
    bench.endCancelled(second);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('now');
  });

  it('is its prompt where it was lost before its conversation held that', async () => {
    const bench = new Bench();
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.open();
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

  it('while an answer is on its way is confirmed where somebody had spoken since', async () => {
    const bench = new Bench();
    bench.holdsBack = true;
    bench.created('s1');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    bench.stop('s1', 'first stop');
    expect(bench.confirmed, 'the answer is the last word').toEqual([]);
    bench.prompt('s1', 'more');
    bench.stop('s1', 'second stop');
    expect(bench.confirmed).toHaveLength(1);
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
    expect(bench.promptOfWork()).toMatch(/^This is about .*\n\nhello$/);
  });
});

describe('what could not begin', () => {
  it('is said with the words that come after it', async () => {
    const bench = new Bench();
    const ready = bench.place;
    bench.place = () => Promise.resolve({ kind: 'failed', message: 'the set-up failed' });
    bench.created('s1', 'fix it');
    await bench.settle();
    expect(bench.states('s1')).toEqual(['failed']);
    bench.prompt('s1', 'once more');
    await bench.settle();
    bench.place = ready;
    bench.prompt('s1', 'try again');
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nonce more\n\ntry again');
  });

  it('holds no other thread of the issue up while a person is asked', async () => {
    const bench = new Bench();
    let isAnswered = false;
    bench.place = ({ id }) =>
      Promise.resolve(
        id === 's1' && !isAnswered
          ? { kind: 'waits', isOver: () => isAnswered }
          : { kind: 'ready', cwd: '/' },
      );
    bench.created('s1', 'fix it');
    await bench.settle();
    bench.created('s2', 'look');
    await bench.settle();
    expect([bench.states('s1'), bench.states('s2')]).toEqual([['pending'], ['running']]);
    bench.run();
    bench.rig.end(bench.work);
    isAnswered = true;
    await bench.settle();
    expect(bench.states('s1')).toEqual(['running']);
  });

  it('says nothing after a stop that came while its place was made', async () => {
    const bench = new Bench();
    let finish = (): void => undefined;
    bench.place = () =>
      new Promise((resolve) => {
        finish = () => resolve({ kind: 'failed', message: 'the set-up failed' });
      });
    bench.created('s1', 'fix it');
    const looking = bench.agent.look();
    await Promise.resolve();
    await Promise.resolve();
    bench.stop('s1');
    finish();
    await looking;
    await bench.settle();
    expect(bench.lastWords('s1')).toEqual(['Stopped']);
  });

  it('a prompt that Pi would take for a command is a prompt', async () => {
    const bench = new Bench();
    bench.created('s1', '/compact everything');
    await bench.settle();
    expect(bench.promptOfWork()).toBe('Message: /compact everything');
  });
});

describe('what comes late, by the time at which it was said', () => {
  const at = (minute: number): string => `2026-01-02T03:${String(minute).padStart(2, '0')}:00.000Z`;

  it('a stop that is older than the newest prompt stops nothing', async () => {
    const bench = new Bench();
    bench.created('s1');
    bench.prompt('s1', 'go on', 'a1', { saidAt: at(10) });
    await bench.settle();
    bench.run();
    bench.stop('s1', 'late stop', at(5));
    await bench.settle();
    expect(bench.states('s1').filter((state) => state === 'running')).toHaveLength(1);
    expect(bench.lastWords('s1')).toEqual([]);
    bench.stop('s1', 'real stop', at(15));
    expect(bench.rig.store.workUnits.statusOf(bench.work)).toBe('cancelling');
  });

  it('a prompt that is older than one that waits is said before it', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const { work } = bench;
    bench.prompt('s1', 'second', 'a2', { saidAt: at(12) });
    bench.prompt('s1', 'first', 'a1', { saidAt: at(11) });
    bench.endCancelled(work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('first\n\nsecond');
  });

  it('a prompt that is older than a stop starts nothing, also when somebody has spoken since', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const { work } = bench;
    bench.stop('s1', 'stop', at(10));
    bench.endCancelled(work);
    bench.prompt('s1', 'after it', 'a2', { saidAt: at(12) });
    bench.prompt('s1', 'before it', 'a1', { saidAt: at(5) });
    await bench.settle();
    expect(bench.promptOfWork()).toBe('after it');
  });

  it('a prompt that is older than the stop starts nothing; a newer one does', async () => {
    const bench = new Bench();
    bench.created('s1');
    bench.stop('s1', 'stop', at(10));
    bench.prompt('s1', 'before it', 'a1', { saidAt: at(5) });
    await bench.settle();
    expect(bench.liveWork()).toEqual([]);
    bench.prompt('s1', 'after it', 'a2', { saidAt: at(12) });
    await bench.settle();
    expect(bench.promptOfWork()).toMatch(/^This is about .*\n\nafter it$/);
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
