/** Turns over a real store: one at a time for an issue, interrupted by prompts, ended by stops. */
import { afterEach, describe, expect, it } from 'vitest';
import { Bench } from '../support/linear-bench.ts';
import { cleanUp } from './rig.ts';

afterEach(cleanUp);

describe('a session', () => {
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

  it('holds its issue and its work tree while it runs, and lets go of both; row 031', async () => {
    const bench = new Bench();
    bench.created('s1');
    await bench.settle();
    bench.run();
    const held = () =>
      bench.rig.store.resources.leasesHeld().map(({ type, key }) => `${type} ${key}`);
    expect(held()).toEqual(
      expect.arrayContaining([
        'external_workspace linear:issue-1',
        expect.stringMatching(/^(path|work_tree|external_subject)/),
      ]),
    );
    bench.rig.end(bench.work);
    expect(held()).toEqual([]);
  });

  it('that we made ourselves starts nothing; bug 2', async () => {
    const bench = new Bench();
    bench.created('s1', 'x', 'issue-1', { own: true });
    bench.prompt('s1', 'a person in it');
    await bench.settle();
    expect(bench.all()).toEqual([]);
  });

  it('X08: whose prompt comes first is held, and joined in order; T40 cyrus PR#154', async () => {
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

describe('a turn', () => {
  it('whose work fails has failed, and the next one of its issue begins; X07', async () => {
    const bench = new Bench();
    bench.created('s1');
    bench.created('s2');
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work, 'failed');
    await bench.settle();
    expect([bench.states('s1'), bench.states('s2')]).toEqual([['failed'], ['running']]);
    expect(bench.said.map(({ text }) => text)).toEqual(['failed']);
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
    bench.open();
    bench.prompt('s1', 'quickly');
    // The second takes the place of the first, which took that of the turn that ran.
    bench.prompt('s1', 'and quietly');
    bench.endCancelled(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly\n\nand quietly');
    bench.open();
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
    bench.open();
    bench.created('s2', 'wait');
    bench.prompt('s2', 'look at this');
    bench.prompt('s1', 'quickly');
    bench.endCancelled(bench.work);
    await bench.settle();
    bench.run();
    bench.rig.end(bench.work);
    await bench.settle();
    expect(bench.promptOfWork()).toBe('fix it\n\nquickly');
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
    expect(bench.promptOfWork()).toMatch(/^You were interrupted.*nothing.* still running/is);
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
    expect(bench.promptOfWork()).toMatch(/^This is about .*\n\nnow$/);
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
