import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { callDiff } from '../../src/attempt/call-diff.ts';
import type { Emit, EventData } from '../../src/attempt/event-data.ts';
import { Fence } from '../../src/attempt/fence.ts';
import { type FenceRecord, fenceRecordOf } from '../../src/attempt/fence-record.ts';
import { runGrants } from '../../src/attempt/grant-command.ts';
import { GrantBook } from '../../src/attempt/grants.ts';
import { redactor } from '../../src/attempt/redact.ts';
import type { RunnerContext } from '../../src/attempt/runner.ts';
import { StopSwitch } from '../../src/attempt/stop.ts';
import type { LaunchFile } from '../../src/domain/attempt-files.ts';
import { type Grant, OPEN_POLICY, type ToolPolicy } from '../../src/domain/decisions.ts';
import type { SpoolLine } from '../../src/domain/spool.ts';
import { asks, Decider, grant } from '../attempt/support/decider.ts';

const SECRET = 'hunter2-hunter2';

/** A fence without Pi: what it writes, what it answers, and a spool that fails at will. */
class Post {
  readonly told: { type: keyof EventData; data: EventData[keyof EventData] }[] = [];
  readonly answers: unknown[] = [];
  readonly stop = new StopSwitch();
  readonly decider = new Decider();
  readonly fence: Fence;
  readonly grants: GrantBook;
  readonly context: RunnerContext;
  /** What cannot be written. */
  failing: keyof EventData | null = null;
  #answered = Promise.withResolvers<void>();

  constructor(policy: ToolPolicy = OPEN_POLICY, grants: readonly Grant[] = []) {
    const cwd = mkdtempSync(path.join(tmpdir(), 'outlive-fence-'));
    onTestFinished(() => rmSync(cwd, { recursive: true }));
    const approvals = this.decider.spec(policy, grants);
    const emit: Emit = (type, data) => {
      if (type === this.failing) return false;
      this.told.push({ type, data });
      return true;
    };
    this.context = {
      launch: { attemptId: 'attempt-1', cwd, approvals, umask: 0o022 } as unknown as LaunchFile,
      attemptDirectory: cwd,
      environment: { PATH: process.env['PATH'] ?? '' },
      emit,
      onLook: () => {},
      providers: [],
      nest: null,
      live: () => {},
      stop: this.stop,
      redact: redactor({ KEY: SECRET }),
      warn: () => {},
    };
    this.grants = new GrantBook(approvals);
    this.fence = new Fence(
      this.context,
      emit,
      ({ value }) => {
        this.answers.push(JSON.parse(String(value)));
        this.#answered.resolve();
      },
      this.grants,
    );
    onTestFinished(() => this.fence.dispose());
  }

  get types(): string[] {
    return this.told.map(({ type }) => type);
  }

  begin(command: string, toolCallId = 'c1', foreign = false): Promise<unknown> {
    const call = { toolCallId, tool: 'bash', arguments: { command }, cwd: this.context.launch.cwd };
    return this.ask({ kind: 'begin', ...call, foreign });
  }

  /** Gives a record; the answer that comes next. */
  async ask(record: FenceRecord): Promise<unknown> {
    this.#answered = Promise.withResolvers<void>();
    this.fence.take('id', record);
    await this.#answered.promise;
    return this.answers.at(-1);
  }

  /** The last line of a type, as the decider reads it. */
  line(type: SpoolLine['type']): SpoolLine {
    const found = this.told.findLast((one) => one.type === type);
    return { n: 1, ts: '', type, data: { ...found?.data } };
  }
}

const NOT_WRITTEN = { refused: 'Not run: that it starts could not be written down' };

test('a start that cannot be written is not answered with "go"', async () => {
  const post = new Post();
  expect(await post.begin('true')).toEqual({ go: true });
  post.failing = 'tool.start';
  expect(await post.begin('true', 'c2')).toEqual(NOT_WRITTEN);
  expect(post.types).toEqual(['tool.start']);
});

test('a question that cannot be written is not waited for', async () => {
  const post = new Post(asks('bash'));
  post.failing = 'approval.requested';
  expect(await post.begin('true')).toEqual(NOT_WRITTEN);
});

test('an approved call whose start cannot be written is refused', async () => {
  const post = new Post(asks('bash'));
  const answer = post.begin('true');
  post.failing = 'tool.start';
  post.decider.decide(post.line('approval.requested'), 'approved');
  post.fence.look();
  expect(await answer).toEqual(NOT_WRITTEN);
});

test('an approved command of an earlier attempt whose start cannot be written does not run, nor do the next', async () => {
  const marks = mkdtempSync(path.join(tmpdir(), 'outlive-marks-'));
  onTestFinished(() => rmSync(marks, { recursive: true }));
  const call = (name: string) => ({
    tool: 'bash',
    arguments: { command: `echo > ${marks}/${name}` },
    cwd: marks,
  });
  const post = new Post(OPEN_POLICY, [grant(call('a')), grant(call('b'))]);
  expect(post.grants.toRun).toHaveLength(2);
  post.failing = 'tool.start';
  expect(await runGrants(post.context, post.fence, post.grants.toRun, () => {})).toEqual([]);
  expect([existsSync(`${marks}/a`), existsSync(`${marks}/b`)]).toEqual([false, false]);
});

test('a call that cannot be judged is refused', async () => {
  const post = new Post({
    rules: [{ effect: 'deny', tool: 'bash', argument: { pattern: '(' } }],
    otherwise: 'allow',
  });
  expect(await post.begin('true')).toEqual({
    refused: expect.stringContaining('outlive could not judge it: SyntaxError'),
  });
  expect(post.types).toEqual([]);
});

test('once the run is being stopped nothing begins, nothing is answered, and a question stays open', async () => {
  const post = new Post(asks('bash'));
  void post.begin('true');
  post.decider.decide(post.line('approval.requested'), 'approved');
  post.stop.turn({ by: 'SIGTERM', graceMs: 1, code: null, message: '' });
  post.fence.look();
  void post.begin('true', 'c2');
  post.fence.take(null, { kind: 'dropped', toolCallId: 'c1' });
  const ended = { toolCallId: 'c1', tool: 'bash', isError: true, result: '', durationMs: null };
  post.fence.piEnded(ended, {});
  // An answer that is owed comes before this one.
  const end = { toolCallId: 'c3', tool: 'bash', isError: false, result: '', durationMs: 1 };
  expect(await post.ask({ kind: 'end', ...end })).toEqual({});
  expect(post.answers).toEqual([{}]);
  expect(post.types).toEqual(['approval.requested']);
});

test('a call that was let go and aborted before it ran has an end that says so', async () => {
  const post = new Post();
  await post.begin('true');
  post.fence.take(null, { kind: 'dropped', toolCallId: 'c1' });
  expect(post.line('tool.end').data).toMatchObject({
    isError: true,
    durationMs: null,
    fenced: true,
  });
  post.fence.piEnded(
    { toolCallId: 'c1', tool: 'bash', isError: true, result: '', durationMs: 1 },
    {},
  );
  expect(post.types).toEqual(['tool.start', 'tool.end']);
});

test('a call that was let go and of which Pi alone tells the end has that end', async () => {
  const post = new Post({ rules: [{ effect: 'allow', tool: 'bash' }], otherwise: 'deny' });
  await post.begin('true', 'c1', true);
  const end = {
    toolCallId: 'c1',
    tool: 'bash',
    isError: true,
    result: 'blocked',
    durationMs: null,
  };
  post.fence.piEnded(end, {});
  expect(post.line('tool.end').data).toEqual({ ...end, fenced: true });
});

test('two calls under one id: the second is refused while the first is open', async () => {
  const post = new Post();
  await post.begin('true');
  expect(await post.begin('true')).toEqual({ refused: 'Not run: its id is in use' });
  await post.ask({
    kind: 'end',
    toolCallId: 'c1',
    tool: 'bash',
    isError: false,
    result: '',
    durationMs: 1,
  });
  expect(await post.begin('true')).toEqual({ go: true });
});

test('a call under an id that was asked about before is a question of its own', async () => {
  const post = new Post(asks('bash'));
  const first = post.begin('echo a');
  const asked = post.line('approval.requested');
  post.decider.decide(asked, 'approved');
  post.fence.look();
  expect(await first).toEqual({ go: true });
  const end = { isError: false, result: 'a', durationMs: 1 } as const;
  await post.ask({ kind: 'end', toolCallId: 'c1', tool: 'bash', ...end });
  const second = post.begin('echo a');
  const askedAgain = post.line('approval.requested');
  expect(askedAgain.data['toolCallId']).toBe('c1~2');
  post.fence.look();
  expect(
    post.types.filter((type) => type === 'tool.start'),
    'the old answer is none',
  ).toHaveLength(1);
  post.decider.decide(askedAgain, 'denied');
  post.fence.look();
  expect(await second).toEqual({ refused: 'Denied by a person: without a reason' });
  expect(post.line('approval.resolved').data['toolCallId']).toBe('c1~2');
});

test('an end without a start is not written', async () => {
  const post = new Post();
  await post.ask({
    kind: 'end',
    toolCallId: 'c1',
    tool: 'bash',
    isError: false,
    result: '',
    durationMs: 1,
  });
  expect(post.types).toEqual([]);
});

test('what a person is asked about has no secrets and is bounded, and is known by what it is', async () => {
  const post = new Post(asks('write'));
  const given = { path: 'a.txt', content: `${SECRET}\n${'x'.repeat(100_000)}` };
  const { cwd } = post.context.launch;
  const call = { tool: 'write', arguments: given, cwd };
  void post.ask({ kind: 'begin', toolCallId: 'c1', ...call, foreign: false });
  const { data } = post.line('approval.requested');
  expect(JSON.stringify(data)).not.toContain(SECRET);
  expect(data['diff']).toContain('+[redacted KEY]');
  expect(JSON.stringify(data['arguments']).length).toBeLessThan(20_000);
  expect(String(data['diff']).length).toBeLessThan(20_000);
  expect(data['fingerprint']).toBe(grant(call).fingerprint);
});

test("somebody else's tool is asked about by nobody: allowed by its name, denied, or refused", async () => {
  const answerTo = (policy: ToolPolicy): Promise<unknown> =>
    new Post(policy).begin('true', 'c', true);
  const refused = { refused: expect.stringContaining('cannot fence') };
  const rule = (effect: 'allow' | 'ask' | 'deny', tool: string): ToolPolicy => ({
    rules: [{ effect, tool }],
    otherwise: 'allow',
  });
  expect(await answerTo(rule('allow', 'bash'))).toEqual({ go: true });
  expect(await answerTo(rule('allow', '*'))).toEqual(refused);
  expect(await answerTo(rule('ask', 'bash'))).toEqual(refused);
  expect(await answerTo(OPEN_POLICY)).toEqual(refused);
  expect(await answerTo(rule('deny', 'bash'))).toEqual({
    refused: 'Refused by the policy: the policy of this run denies it',
  });
});

test.each([
  ['', null],
  ['hello', null],
  ['outlive:fence {', null],
  ['outlive:fence {"kind":"begin"}', null],
  ['outlive:fence {"kind":"other","toolCallId":"c"}', null],
  ['outlive:fence {"kind":"dropped","toolCallId":"c"}', { kind: 'dropped', toolCallId: 'c' }],
  ['outlive:fence {"kind":"ready"}', { kind: 'ready', tools: [] }],
])('the record in %s', (text, record) => {
  expect(fenceRecordOf(text)).toEqual(record);
});

test("a record that does not say whose tool it is about is about a stranger's", () => {
  expect(fenceRecordOf('outlive:fence {"kind":"begin","toolCallId":"c"}')).toMatchObject({
    foreign: true,
  });
});

test.each<[string, string, object, RegExp]>([
  [
    'an edit in a file with CRLF',
    'a\r\nb\r\n',
    { edits: [{ oldText: 'b', newText: 'c' }] },
    /^-b\n\+c\n/m,
  ],
  [
    'two edits',
    'a\nb\n',
    {
      edits: [
        { oldText: 'b', newText: 'B' },
        { oldText: 'a', newText: 'A' },
      ],
    },
    /-a\n-b\n\+A\n\+B\n/,
  ],
  [
    'a text that stands there twice',
    'a\na\n',
    { edits: [{ oldText: 'a', newText: 'b' }] },
    /@@ edit 1: its place is not certain @@\n-a\n\+b\n/,
  ],
  [
    'edits that overlap',
    'abc\n',
    {
      edits: [
        { oldText: 'ab', newText: '' },
        { oldText: 'bc', newText: '' },
      ],
    },
    /edit 2: its place is not certain/,
  ],
  ['no edits', 'a\n', {}, /^$/],
])('the diff of %s', (_, before, given, expected) => {
  const cwd = mkdtempSync(path.join(tmpdir(), 'outlive-diff-'));
  onTestFinished(() => rmSync(cwd, { recursive: true }));
  writeFileSync(path.join(cwd, 'f'), before);
  const call = { tool: 'edit', arguments: { path: 'f', ...given }, cwd };
  expect(callDiff(call, undefined, (text) => text)).toMatch(expected);
});

test('a file that cannot be read has no diff, with the reason; another tool has none at all', () => {
  const call = { tool: 'write', arguments: { path: '/proc/self', content: '' }, cwd: '/' };
  expect(callDiff(call, undefined, (text) => text)).toBe(
    '(no diff: the file cannot be read: EISDIR)\n',
  );
  expect(callDiff({ ...call, tool: 'bash' }, undefined, (text) => text)).toBeNull();
});
