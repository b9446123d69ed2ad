/** What Linear is told of a run, each thing once: the narrator on a real store. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { KEEPALIVE_MS } from '../../src/linear/narrator.ts';
import { callOf, messageOf, OutboxRig, successOf } from '../support/linear-outbox.ts';
import { AT, cleanUp, insertAttempt, nextId, raw } from './rig.ts';

let rig: OutboxRig;
beforeEach(() => {
  vi.useFakeTimers({ now: Date.parse(AT) });
  rig = new OutboxRig();
});
afterEach(async () => {
  const stopped = rig.outbox?.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  await stopped;
  vi.useRealTimers();
  await cleanUp();
});

const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

const said = () => rig.said();
const texts = (): string[] => said().map(({ text }) => text);
const updates = (): unknown[] =>
  rig
    .rows()
    .map(({ body_json }) => JSON.parse(body_json) as Record<string, unknown>)
    .filter((body) => !('content' in body));

describe('row 194, row 196: a run', () => {
  it('is told as thoughts and actions in the order in which it happened, and one answer', () => {
    const turn = rig.turn();
    const narrator = rig.narrator();
    const [start, end] = callOf('bash', { command: 'npm test' }, 'ok');
    const told: string[][] = [];
    for (const event of [
      ...messageOf(1, 'I run the tests.'),
      start,
      end,
      ...messageOf(2, 'All is well.', 'stop'),
    ]) {
      rig.events(turn, event);
      narrator.narrate(turn);
      told.push(texts());
    }
    expect(told.map((one) => one.length)).toEqual([0, 1, 2, 3, 3, 3]);
    expect(said()).toEqual([
      { text: 'thought: I run the tests.', state: 'pending', ephemeral: false, terminal: false },
      { text: 'bash: npm test', state: 'pending', ephemeral: true, terminal: false },
      { text: 'bash: npm test = ok', state: 'pending', ephemeral: false, terminal: false },
    ]);
    rig.events(turn, ...successOf('All is well.'));
    expect(narrator.narrate(turn)).toBe(true);
    expect(said().at(-1)).toEqual({
      text: 'response: All is well.',
      state: 'pending',
      ephemeral: false,
      terminal: true,
    });
  });

  it('of several messages tells all but the last as thoughts: none ends the session early; bug 15', () => {
    const turn = rig.turn();
    rig.events(
      turn,
      ...messageOf(1, 'Working on it.', 'stop'),
      ...messageOf(2, 'And now the rest.', 'stop'),
      ['agent.thought', { message: 3, block: 1, delta: 'Is that ' }],
      ['agent.thought', { message: 3, block: 1, delta: 'all?' }],
      ...messageOf(3, 'It is done.', 'stop'),
    );
    rig.narrator().narrate(turn);
    expect(texts()).toEqual([
      'thought: Working on it.',
      'thought: And now the rest.',
      'thought: Is that all?',
    ]);
    rig.events(turn, ...successOf(''));
    rig.narrator().narrate(turn);
    expect(texts().at(-1)).toBe('response: It is done.');
  });

  it('that says nothing is answered all the same; bug 5, an empty body', () => {
    const turn = rig.turn();
    rig.events(turn, ...messageOf(1, ' \n\u0000 '), ...successOf('\u001b[0m'));
    rig.narrator().narrate(turn);
    expect(texts()).toEqual(['response: Done. The agent left no text.']);
  });

  it('that thinks long before it says something is told what it said', () => {
    const turn = rig.turn();
    rig.events(
      turn,
      ['agent.thought', { message: 1, block: 1, delta: 'hm '.repeat(3_000) }],
      ...messageOf(1, 'I look.'),
    );
    rig.narrator().narrate(turn);
    expect(texts()[0]).toMatch(/^thought: hm .*…\n\nI look\.$/s);
  });

  it('that fails is an error that says what to do', () => {
    const turn = rig.turn();
    rig.events(turn, [
      'work_unit.failed',
      { errorCode: 'provider_auth', errorMessage: 'acme answered 401' },
    ]);
    expect(rig.narrator().narrate(turn)).toBe(true);
    const [text = ''] = texts();
    expect(text).toMatch(
      /^error: The model provider refused the credentials.*: acme answered 401\./,
    );
    expect(text).toContain('Check the key of the model provider');
    expect(text).toMatch(/`outlive explain h\d+`/);
  });

  it('whose events are gone before they were read ends as its row says', () => {
    const turn = rig.turn();
    raw(rig.directory)
      .prepare(
        `UPDATE work_units SET status = 'failed', error_code = 'oom', error_message = 'boom'
         WHERE id = ?`,
      )
      .run(turn.workUnitId);
    const narrator = rig.narrator();
    expect(narrator.narrate(turn)).toBe(true);
    expect(narrator.narrate(turn)).toBe(true);
    expect(texts()).toHaveLength(1);
    expect(texts()[0]).toContain('want of memory');
  });

  it('that was refused a call tells so', () => {
    const turn = rig.turn();
    rig.events(turn, [
      'tool.refused',
      { toolCallId: 'c', tool: 'bash', arguments: { command: 'rm' }, by: 'policy', reason: 'No.' },
    ]);
    rig.narrator().narrate(turn);
    expect(texts()).toEqual(['bash: rm = Not run. No.']);
  });

  it('begins where the turn before it ended, if it is of the same work unit', () => {
    const turn = rig.turn();
    rig.events(turn, ...callOf('bash', { command: 'old' }));
    rig.narrator().narrate({ ...turn, afterSeq: 2 });
    expect(texts()).toEqual([]);
    rig.events(turn, ...callOf('bash', { command: 'new' }));
    rig.narrator().narrate({ ...turn, afterSeq: 2 });
    expect(texts()).toEqual(['bash: new', 'bash: new = done']);
  });
});

describe('row 296, bug 21: an interrupted turn (AC5)', () => {
  it('leaves no error and no answer, and what waits of it is dropped', () => {
    const turn = rig.turn();
    const narrator = rig.narrator();
    rig.events(turn, ...callOf('bash', { command: 'sleep 9' }));
    narrator.narrate(turn);
    rig.interrupt(turn);
    rig.events(
      turn,
      ['tool.end', { toolCallId: 'x', tool: 'bash', isError: true, result: 'Aborted' }],
      ['runner.finished', { verdict: 'stopped', text: 'Request was aborted' }],
      [
        'work_unit.cancelled',
        { errorCode: 'interrupted_by_prompt', errorMessage: 'A new prompt interrupted it' },
      ],
    );
    expect(narrator.narrate(turn)).toBe(true);
    expect(said().map(({ state }) => state)).toEqual(['dropped', 'dropped']);
    expect(rig.store.linearOutbox.terminalOf(turn.turnId)).toBe(null);
  });

  it('is known by the code of its end alone', () => {
    const turn = rig.turn();
    rig.events(turn, ...callOf('bash', { command: 'sleep 9' }), [
      'work_unit.cancelled',
      { errorCode: 'interrupted_by_prompt', errorMessage: 'A new prompt interrupted it' },
    ]);
    expect(rig.narrator().narrate(turn)).toBe(true);
    expect(said().filter(({ state }) => state !== 'dropped')).toEqual([]);
  });

  it('is no stop: that is answered, and not as an error', () => {
    const turn = rig.turn();
    rig.events(turn, [
      'work_unit.cancelled',
      { errorCode: 'cancelled_by_request', errorMessage: 'It was cancelled by request' },
    ]);
    rig.narrator().narrate(turn);
    expect(texts()).toEqual(['response: Stopped. Write here and it goes on from where it was.']);
  });
});

describe('X01: the first word and signs of life', () => {
  it('the first is there at once, and once, also after a restart', () => {
    const turn = rig.turn();
    expect(rig.narrator().acknowledge(turn)).toBe(true);
    expect(rig.narrator().acknowledge(turn)).toBe(false);
    expect(rig.narrator().acknowledge({ sessionId: 'session', turnId: null })).toBe(false);
    expect(texts()).toEqual(['thought: Starting to work on this.']);
    const next = rig.turn('session', 'next');
    expect(rig.narrator().acknowledge(next, 'Going on.')).toBe(true);
  });

  it('that waited in vain is said again', () => {
    const turn = rig.turn();
    rig.narrator().acknowledge(turn);
    raw(rig.directory).prepare(`UPDATE linear_outbox SET state = 'expired'`).run();
    expect(rig.narrator().acknowledge(turn)).toBe(true);
  });

  it('goes out within 10 s of `created`, however full the outbox is', async () => {
    rig.api.behave = (_input, priority) =>
      new Promise((resolve) => setTimeout(resolve, priority === 0 ? 200 : 30_000));
    rig.start();
    for (let n = 0; n < 40; n++) {
      const busy = rig.turn(`busy ${n}`);
      rig.events(busy, ...callOf('bash', { command: 'ls' }), ...callOf('bash', { command: 'ls' }));
      rig.narrator().narrate(busy);
    }
    await pass(5_000);
    const created = Date.now();
    rig.narrator().acknowledge(rig.turn('new'));
    await pass(10_000);
    const row = rig.store.linearOutbox;
    expect(rig.api.has.some(({ agentSessionId }) => agentSessionId === 'new')).toBe(true);
    expect(Date.parse(row.lastActivity('new') ?? '') - created).toBeLessThan(10_000);
  });

  it('a silence is broken every 15 minutes, and only a silence', async () => {
    const turn = rig.turn();
    const narrator = rig.narrator();
    rig.start();
    narrator.acknowledge(turn);
    rig.events(turn, callOf('bash', { command: 'make all' })[0]);
    narrator.narrate(turn);
    await pass(1);
    const times: number[] = [];
    for (let due = narrator.keepAlive(turn); Date.now() < Date.parse(AT) + 4 * 3_600_000; ) {
      const before = texts().length;
      await pass(due);
      due = narrator.keepAlive(turn);
      await pass(1);
      if (texts().length > before) times.push(Date.now());
    }
    expect(times).toHaveLength(16);
    const gaps = times.slice(1).map((time, index) => time - (times[index] ?? 0));
    expect(Math.max(...gaps)).toBeLessThan(KEEPALIVE_MS + 1_000);
    expect(rig.api.texts.at(-1)).toBe('thought: Still working. bash: make all');
    rig.events(turn, ...callOf('bash', { command: 'ls' }));
    narrator.narrate(turn);
    expect(narrator.keepAlive(turn), 'something was just said').toBe(KEEPALIVE_MS);
  });

  it('a turn that had its last word is kept alive no more', async () => {
    const turn = rig.turn();
    rig.events(turn, ...successOf('done'));
    rig.narrator().narrate(turn);
    await pass(2 * KEEPALIVE_MS);
    rig.narrator().keepAlive(turn);
    expect(texts()).toEqual(['response: done']);
  });
});

/** A question of the work unit, as the approvals table has it. */
function ask(workUnitId: string, argumentsJson = '{"command":"make deploy"}'): string {
  const attemptId = insertAttempt(rig.store, workUnitId);
  const id = nextId();
  rig.store.write(() =>
    rig.store.approvals.insert({
      id,
      workUnitId,
      attemptId,
      toolCallId: 'call',
      tool: 'bash',
      argumentsJson,
      fingerprint: 'f'.repeat(64),
      cwd: '/',
      diff: null,
      reason: 'Deploys are asked for.',
      requestedAt: AT,
      expiresAt: '2026-01-02T04:04:05.678Z',
      at: AT,
    }),
  );
  return id;
}

describe('a question', () => {
  it('is told once, with both ways to answer, and its answer goes on', async () => {
    const turn = rig.turn();
    const narrator = rig.narrator();
    const id = ask(turn.workUnitId);
    rig.events(turn, ['approval.changed', { approvalId: id, cause: 'asked' }]);
    rig.events(turn, ['approval.changed', { approvalId: id, cause: 'asked' }]);
    narrator.narrate(turn);
    const [row] = rig.rows();
    const body = JSON.parse(row?.body_json ?? '{}') as Record<string, unknown>;
    expect(body).toMatchObject({
      content: { type: 'elicitation' },
      signal: 'select',
      signalMetadata: {
        options: [
          { label: 'Approve', value: 'approve' },
          { label: 'Deny', value: 'deny' },
        ],
      },
    });
    const [text = ''] = texts();
    for (const part of [
      'make deploy',
      'Deploys are asked for.',
      `outlive approve ${id}`,
      `outlive deny ${id}`,
    ])
      expect(text).toContain(part);
    await pass(2 * KEEPALIVE_MS);
    narrator.keepAlive(turn);
    expect(texts(), 'a thought would take the question away').toHaveLength(1);
    const asked = rig.store.approvals.get(id);
    if (!asked) throw new Error('no question');
    rig.store.write(() =>
      rig.store.approvals.move(asked, { status: 'approved', decidedAt: AT }, AT),
    );
    rig.events(turn, ['approval.changed', { approvalId: id, cause: 'decided' }]);
    narrator.narrate(turn);
    expect(texts().slice(1)).toEqual(['thought: Approved. Going on.']);
  });

  it('that was answered before anybody was told is not told', () => {
    const turn = rig.turn();
    const id = ask(turn.workUnitId);
    const asked = rig.store.approvals.get(id);
    if (!asked) throw new Error('no question');
    rig.store.write(() => rig.store.approvals.move(asked, { status: 'denied', decidedAt: AT }, AT));
    rig.events(turn, ['approval.changed', { approvalId: id, cause: 'asked' }]);
    rig.narrator().narrate(turn);
    expect(texts()).toEqual([]);
  });

  it('whose work was lost and goes on by itself says so once, and asks nobody; row 347', () => {
    const turn = rig.turn();
    rig.events(
      turn,
      ['work_unit.stale', { errorCode: 'host_shutdown' }],
      ['work_unit.queued', { reason: 'resume', cause: 'host_shutdown' }],
    );
    rig.narrator().narrate(turn);
    expect(texts()).toEqual([
      'thought: The machine or its user manager went away under it. Resuming after the interruption from where it was.',
    ]);
  });
});

describe('links and plans', () => {
  it('a pull request is linked once, from a result or the answer', () => {
    const turn = rig.turn();
    rig.events(
      turn,
      ...callOf('bash', { command: 'gh pr create' }, 'https://github.com/acme/lamp/pull/7\n'),
      ...callOf('bash', { command: 'gh pr view' }, 'see https://github.com/acme/lamp/pull/7.'),
      ...successOf('There: https://gitlab.com/acme/group/lamp/-/merge_requests/12#note_1'),
    );
    rig.narrator().narrate(turn);
    expect(updates()).toEqual([
      { addedExternalUrls: [{ label: 'acme/lamp#7', url: 'https://github.com/acme/lamp/pull/7' }] },
      {
        addedExternalUrls: [
          {
            label: 'acme/group/lamp!12',
            url: 'https://gitlab.com/acme/group/lamp/-/merge_requests/12',
          },
        ],
      },
    ]);
    const states = rig.rows().map(({ state, body_json }) => [body_json.includes('Urls'), state]);
    expect(states, 'the last word drops no link').toContainEqual([true, 'pending']);
    expect(states).not.toContainEqual([true, 'dropped']);
  });

  it('a pull request that an earlier turn of the session has linked is not linked again', () => {
    const link = 'https://github.com/acme/lamp/pull/7';
    for (const turn of [rig.turn('session', 'first'), rig.turn('session', 'second')]) {
      rig.events(turn, ...successOf(`There: ${link}, ${link}1`));
      rig.narrator().narrate(turn);
    }
    expect(updates()).toEqual([
      {
        addedExternalUrls: [
          { label: 'acme/lamp#7', url: link },
          { label: 'acme/lamp#71', url: `${link}1` },
        ],
      },
    ]);
  });

  it('a plan takes the place of the one before it that still waits', () => {
    const turn = rig.turn();
    const plan = (status: string) =>
      callOf('todo', {
        todos: [
          { content: 'Look', status },
          { text: 'Mend', done: false },
        ],
      });
    rig.events(turn, ...plan('in_progress'), ...plan('completed'));
    rig.narrator().narrate(turn);
    const plans = rig.rows().filter(({ body_json }) => body_json.includes('"plan"'));
    expect(plans.map(({ state }) => state)).toEqual(['dropped', 'pending']);
    expect(JSON.parse(plans[1]?.body_json ?? '{}')).toEqual({
      plan: [
        { content: 'Look', status: 'completed' },
        { content: 'Mend', status: 'pending' },
      ],
    });
  });
});

describe('bug 5: a run that does more than can be told', () => {
  it('has its calls counted while too much waits, and told as one afterwards', () => {
    const turn = rig.turn();
    const narrator = rig.narrator();
    for (let n = 0; n < 200; n++)
      rig.events(turn, ...callOf(n % 2 ? 'read' : 'bash', { path: `${n}` }));
    narrator.narrate(turn);
    expect(texts().length).toBeLessThan(15);
    raw(rig.directory).prepare(`UPDATE linear_outbox SET state = 'delivered'`).run();
    rig.events(turn, ...callOf('bash', { command: 'last' }));
    narrator.narrate(turn);
    const [start, counted, last] = texts().slice(-3);
    expect(start).toBe('bash: last');
    expect(counted).toMatch(/^tools: 19\d calls = \w+ ×9\d, \w+ ×9\d$/);
    expect(last).toBe('bash: last = done');
  });

  it('has no passing activity while the budget is used up', () => {
    const turn = rig.turn();
    rig.events(turn, ...callOf('bash', { command: 'ls' }), ...messageOf(1, 'It is mended.'));
    rig.narrator(rig.store, () => true).narrate(turn);
    expect(texts()).toEqual(['thought: It is mended.']);
  });
});

describe('bug 3: the agent’s own name', () => {
  it('is in no text as a mention, which would call it again', () => {
    const turn = rig.turn();
    rig.events(
      turn,
      ...messageOf(1, 'I am @outlive, see https://linear.app/acme/profiles/outlive.'),
      ...callOf('bash', { command: 'echo @Outlive' }, 'ping @outlive'),
      ...successOf('Ask @@outlive again'),
    );
    rig.narrator().narrate(turn);
    expect(texts()).toEqual([
      'thought: I am outlive, see outlive.',
      'bash: echo Outlive',
      'bash: echo Outlive = ping outlive',
      'response: Ask outlive again',
    ]);
  });
});
