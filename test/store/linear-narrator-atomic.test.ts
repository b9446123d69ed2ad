/** A narrator that dies between any two statements tells nothing twice and leaves nothing out. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { dump } from '../support/dump.ts';
import { callOf, failingAt, messageOf, OutboxRig, successOf } from '../support/linear-outbox.ts';
import { cleanUp, raw } from './rig.ts';

let rig: OutboxRig;
beforeEach(() => {
  rig = new OutboxRig();
});
afterEach(cleanUp);

const texts = (of: OutboxRig): string[] => of.said().map(({ text }) => text);

/** What `work` returned, or the message of what it threw. */
function outcomeOf<Result>(work: () => Result): Result | string {
  try {
    return work();
  } catch (error) {
    return (error as Error).message;
  }
}

describe('a narrator that dies at any statement', () => {
  it('leaves nothing behind, and the next one tells everything once', () => {
    const turn = rig.turn();
    const link = 'https://github.com/acme/lamp/pull/7';
    rig.events(
      turn,
      ...messageOf(1, 'I look.'),
      ...callOf('bash', { command: 'gh pr create' }, link),
      ...callOf('todo', { todos: ['Look'] }),
      ...messageOf(2, 'Done.', 'stop'),
      ...successOf('Done.'),
    );
    const db = raw(rig.directory);
    const before = JSON.stringify(dump(db));
    let failures = 0;
    for (let done = false; !done; ) {
      const narrator = rig.narrator(failingAt(rig.store, failures + 1));
      const outcome = outcomeOf(() => narrator.narrate(turn));
      done = outcome === true;
      if (!done) failures += 1;
      const isUnchanged = JSON.stringify(dump(db)) === before;
      expect([outcome, isUnchanged], `statement ${failures}`).toEqual(
        done ? [true, false] : ['injected', true],
      );
    }
    expect(failures, 'the commit has many statements').toBeGreaterThan(8);
    const after = JSON.stringify(dump(db));
    expect(rig.narrator().narrate(turn)).toBe(true);
    expect(JSON.stringify(dump(db)), 'told again, nothing is new').toBe(after);
    expect(texts(rig)).toEqual([
      'thought: I look.',
      'bash: gh pr create',
      `bash: gh pr create = ${link}`,
      'todo: {"todos":["Look"]}',
      'todo: {"todos":["Look"]} = done',
      'response: Done.',
    ]);
  });

  it('and one that is new after every event tells the same as one that never ended', () => {
    const events = [
      ...messageOf(1, 'I look.'),
      ...callOf('bash', { command: 'ls' }),
      ['agent.thought', { message: 2, block: 1, delta: 'Hm' }] as const,
      ['agent.thought', { message: 2, block: 1, delta: 'm.' }] as const,
      ...messageOf(2, 'One more.'),
      ...callOf('read', { path: 'a.ts' }),
      ...messageOf(3, 'Done.', 'stop'),
      ...successOf('Done.'),
    ];
    const whole = rig.turn('whole');
    const torn = rig.turn('torn');
    const one = rig.narrator();
    for (const event of events) {
      rig.events(whole, event);
      one.narrate(whole);
    }
    const ofWhole = texts(rig);
    raw(rig.directory).prepare('DELETE FROM linear_outbox').run();
    for (const event of events) {
      rig.events(torn, event);
      rig.narrator().narrate(torn);
    }
    expect(texts(rig)).toEqual(ofWhole);
  });
});
