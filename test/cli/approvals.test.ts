/** Questions and answers as processes, against a daemon that answers by script. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ApprovalView } from '../../src/api/schemas-approvals.ts';
import { aWorkUnit, FakeDaemon, type Handler, json, problem, WORK_UNIT_ID } from './fake-daemon.ts';
import { outlive } from './outlive.ts';

const daemons: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(daemons.splice(0).map((daemon) => daemon.dispose()));
});

async function serve(handler: Handler): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon(handler).listen();
  daemons.push(daemon);
  return daemon;
}

const ID = '01a22907-87b6-7000-8000-00000000000a';
const OTHER = '01a22907-87b6-7000-8000-00000000000b';

const anApproval = (known: Partial<ApprovalView> = {}): ApprovalView => ({
  id: ID,
  workUnitId: WORK_UNIT_ID,
  handle: 'issue42',
  attemptId: '01a22907-87b6-7000-8000-0000000000aa',
  status: 'pending',
  tool: 'bash',
  arguments: { command: 'make deploy' },
  fingerprint: 'f'.repeat(64),
  toolCallId: 'call_1',
  cwd: '/repo',
  diff: null,
  reason: 'it leaves the machine',
  requestedAt: '2026-11-29T20:00:00.000Z',
  expiresAt: '2026-11-30T20:00:00.000Z',
  decidedAt: null,
  decidedBy: null,
  decisionReason: null,
  checkpoint: 'waiting',
  boundAttemptId: null,
  failureCode: null,
  revision: 1,
  ...known,
});

/** A daemon with these questions; it decides whatever it is told to. */
const serveQuestions = (...items: readonly ApprovalView[]): Promise<FakeDaemon> =>
  serve(({ method, url }, response) => {
    const [, , id, verb] = url.pathname.split('/');
    if (method === 'GET' && id === undefined) {
      json(response, 200, { items, nextCursor: null });
      return;
    }
    const approval = items.find((item) => item.id === id);
    if (!approval) {
      problem(response, 'not_found', `There is no approval "${id}". See: outlive approvals.`);
      return;
    }
    const status = verb === 'approve' ? 'approved' : 'denied';
    json(response, 200, verb === undefined ? approval : { ...approval, status });
  });

const sent = ({ requests }: FakeDaemon) =>
  requests.map(({ method, url, body }) => [method, url.pathname + url.search, body]);

const COMMANDS = [
  ['approvals'],
  ['approvals', 'list'],
  ['approvals', 'show'],
  ['approve'],
  ['deny'],
];

describe('help and usage', () => {
  it.each(COMMANDS)('%s %s has help, with an example that calls it', async (...words) => {
    const command = words.filter((word) => typeof word === 'string');
    const { code, stdout, stderr } = await outlive([...command, '--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(`Usage: outlive ${command.join(' ')}`);
    expect(stdout).toMatch(new RegExp(`Example:\\n  outlive ${command.join(' ')}\\b`));
  });

  it.each<[string[], string]>([
    [['approve'], "missing required argument 'approval'"],
    [['deny'], "missing required argument 'approval'"],
    [['approvals', 'show'], "missing required argument 'id'"],
    [['approve', 'x', 'y'], 'too many arguments'],
    [['approve', 'x', '--fail'], "unknown option '--fail'"],
    [['approvals', '--status', 'open'], 'Allowed choices are pending, approved, denied'],
  ])('%j exits with 2', async (args, said) => {
    const { code, stdout, stderr } = await outlive(args);
    expect(stderr).toContain(said);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  });

  it.each([
    [['approvals']],
    [['approvals', 'show', ID]],
    [['approve', ID]],
    [['approve', 'issue42']],
    [['deny', ID, '--fail']],
  ])('without a daemon %j exits with 4', async (args) => {
    const { code, stdout, stderr } = await outlive(args);
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
    expect(stderr).toContain('Start it with: outlive daemon start\n');
  });
});

describe('outlive approvals', () => {
  it('lists what is asked: who, which tool, until when, and the command', async () => {
    const daemon = await serveQuestions(
      anApproval(),
      anApproval({ id: OTHER, handle: 'x', tool: 'edit', arguments: { path: 'a.ts', edits: [] } }),
    );
    const { code, stdout } = await outlive(['approvals'], daemon);
    expect(code).toBe(0);
    const [header, first, second] = stdout.split('\n');
    expect(header).toMatch(/^APPROVAL +HANDLE +STATUS +TOOL +ASKED +EXPIRES +WHAT$/);
    expect(first).toMatch(new RegExp(`^${ID} +issue42 +pending +bash .* make deploy$`));
    expect(second).toMatch(/ edit .* a\.ts$/);
    expect(sent(daemon)).toEqual([['GET', '/approvals?status=pending', '']]);
  });

  it.each<[string[], string]>([
    [['--all'], '/approvals'],
    [['--status', 'denied'], '/approvals?status=denied'],
    [['--of', 'issue42'], '/approvals?status=pending&workUnit=issue42'],
    [['list', '--all', '--of', 'issue42'], '/approvals?workUnit=issue42'],
  ])('%j asks for %s', async (args, asked) => {
    const daemon = await serveQuestions();
    expect((await outlive(['approvals', ...args], daemon)).code).toBe(0);
    expect(sent(daemon)).toEqual([['GET', asked, '']]);
  });

  it('says on stderr that there is nothing; as JSON it is an empty list', async () => {
    const daemon = await serveQuestions();
    expect(await outlive(['approvals'], daemon)).toMatchObject({
      code: 0,
      stdout: '',
      stderr: 'Nobody is asked anything. Earlier questions: outlive approvals --all\n',
    });
    const asJson = await outlive(['approvals', '--json'], daemon);
    expect(asJson).toMatchObject({ code: 0, stdout: '{"items":[],"nextCursor":null}\n' });
  });

  it('shows one: arguments, diff, the rule’s reason, and what became of it', async () => {
    const daemon = await serveQuestions(
      anApproval({
        tool: 'edit',
        diff: '--- a.ts\n+++ a.ts\n@@ -1 +1 @@\n-one\n+  two',
        status: 'denied',
        decidedAt: '2026-11-29T21:00:00.000Z',
        decidedBy: 'user',
        decisionReason: 'not on Friday',
        checkpoint: 'resume_failed',
        failureCode: 'work_ended',
      }),
    );
    const { code, stdout } = await outlive(['approvals', 'show', ID], daemon);
    expect(code).toBe(0);
    expect(stdout.split('\n')).toEqual([
      `${ID}  denied`,
      '  work unit  issue42',
      '  tool       edit',
      '  in         /repo',
      '  because    it leaves the machine',
      '  asked      2026-11-29T20:00:00.000Z',
      '  decided    2026-11-29T21:00:00.000Z by user',
      '  reason     not on Friday',
      '  answer     resume_failed',
      '  why not    work_ended',
      '',
      '{',
      '  "command": "make deploy"',
      '}',
      '',
      '--- a.ts',
      '+++ a.ts',
      '@@ -1 +1 @@',
      '-one',
      '+  two',
      '',
    ]);
  });

  it('shows one as JSON, whole', async () => {
    const daemon = await serveQuestions(anApproval());
    const { code, stdout } = await outlive(['approvals', 'show', ID, '--json'], daemon);
    expect({ code, shown: JSON.parse(stdout) }).toEqual({ code: 0, shown: anApproval() });
  });

  it('lets nothing of what a model wrote reach the terminal as more than text', async () => {
    const evil = '\u001b[2K\u001b[1A\u009b31m\u202egnirts\u200b\rrm -rf /\u0007';
    const hostile = anApproval({
      handle: 'issue42',
      tool: `bash${evil}`,
      arguments: { command: `${evil}\n\nsecond line` },
      reason: evil,
      cwd: `/repo${evil}`,
      diff: `+${evil}\n- x${evil}`,
      decisionReason: evil,
    });
    const daemon = await serveQuestions(hostile);
    for (const args of [['approvals'], ['approvals', 'show', ID], ['approve', ID], ['deny', ID]]) {
      const { stdout, stderr } = await outlive(args, daemon);
      expect(stdout + stderr).not.toMatch(/[[\p{Cc}\p{Bidi_Control}\u200b]--[\t\n]]/v);
      expect(stdout + stderr).toContain('\\x1b[2K');
    }
    const { stdout } = await outlive(['approvals'], daemon);
    expect(stdout.trimEnd().split('\n'), 'one line a question').toHaveLength(2);
  });

  it('cuts a long command to a line, and never in the middle of a character', async () => {
    const command = `${'x'.repeat(78)}\u{1f600}${'y'.repeat(100)}`;
    const daemon = await serveQuestions(anApproval({ arguments: { command } }));
    const { stdout } = await outlive(['approvals'], daemon);
    expect(stdout).toContain('x…');
    expect(stdout).not.toContain('\ufffd');
    expect(stdout).not.toContain('yy');
  });

  it('prints no colour, with NO_COLOR or without', async () => {
    const daemon = await serveQuestions(anApproval({ diff: '-a\n+b' }));
    for (const env of [{}, { NO_COLOR: '1' }, { FORCE_COLOR: '1' }]) {
      const { stdout } = await outlive(['approvals', 'show', ID], {
        runtimeDirectory: daemon.runtimeDirectory,
        env,
      });
      expect(stdout).not.toContain('\u001b');
    }
  });
});

describe('outlive approve and deny', () => {
  it('by id: one request, with a key of its own', async () => {
    const daemon = await serveQuestions(anApproval());
    const { code, stdout, stderr } = await outlive(['approve', ID, '--reason', 'fine'], daemon);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toBe('bash of issue42 is approved. Watch: outlive logs issue42 --follow\n');
    expect(sent(daemon)).toEqual([['POST', `/approvals/${ID}/approve`, '{"reason":"fine"}']]);
    expect(daemon.requests[0]?.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('by the handle of work that asks one question', async () => {
    const daemon = await serveQuestions(anApproval());
    const args = ['deny', 'issue42', '--fail', '--idempotency-key', 'k'];
    expect((await outlive(args, daemon)).code).toBe(0);
    expect(sent(daemon)).toEqual([
      ['GET', '/approvals?workUnit=issue42&status=pending', ''],
      ['POST', `/approvals/${ID}/deny`, '{"fail":true}'],
    ]);
    expect(daemon.requests[1]?.headers['idempotency-key']).toBe('k');
  });

  it('by a handle that looks like the beginning of an id', async () => {
    const daemon = await serveQuestions(anApproval({ handle: 'deadbeef-0042-fix' }));
    expect((await outlive(['approve', 'deadbeef-0042-fix'], daemon)).code).toBe(0);
    expect(sent(daemon).at(-1)?.[1]).toBe(`/approvals/${ID}/approve`);
  });

  it.each<[string, ApprovalView[], string]>([
    ['none', [], 'issue42 asks nothing. See: outlive approvals --all --of issue42.'],
    [
      'two questions',
      [anApproval(), anApproval({ id: OTHER })],
      'issue42 asks 2 questions. Name one by its id: outlive approvals --of issue42.',
    ],
  ])(
    'by the handle of work that asks %s exits with 3 and decides nothing',
    async (_what, items, said) => {
      const daemon = await serveQuestions(...items);
      for (const verb of ['approve', 'deny']) {
        const { code, stdout, stderr } = await outlive([verb, 'issue42'], daemon);
        expect(stderr).toContain(said);
        expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
      }
      expect(daemon.requests.map(({ method }) => method)).toEqual(['GET', 'GET']);
    },
  );

  it.each<[Parameters<typeof problem>[1], number]>([
    ['not_found', 3],
    ['shutting_down', 4],
    ['approval_closed', 5],
    ['state_conflict', 5],
    ['idempotency_mismatch', 5],
    ['invalid_request', 2],
  ])('answers %s with exit status %i and the words of the daemon', async (code, exit) => {
    const daemon = await serve((_, response) => problem(response, code, 'Because it is so.'));
    const ended = await outlive(['approve', ID], daemon);
    expect({ code: ended.code, stdout: ended.stdout }).toEqual({ code: exit, stdout: '' });
    expect(ended.stderr).toContain('Because it is so.');
  });

  it('prints the approval with --json, and nothing else', async () => {
    const daemon = await serveQuestions(anApproval());
    const { code, stdout, stderr } = await outlive(['approve', ID, '--json'], daemon);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).toEqual(anApproval({ status: 'approved' }));
  });

  it('sends the same again, with the same key, when the answer is lost', async () => {
    const daemon = await serve((_, response) => {
      if (daemon.requests.length === 1) response.destroy();
      else json(response, 200, anApproval({ status: 'approved' }));
    });
    expect((await outlive(['approve', ID], daemon)).code).toBe(0);
    const [first, second, ...more] = daemon.requests;
    expect(more).toEqual([]);
    expect(second?.url.href).toBe(first?.url.href);
    expect(second?.headers['idempotency-key']).toBe(first?.headers['idempotency-key']);
  });

  it('names the workspace in what to type next', async () => {
    const daemon = await serveQuestions(anApproval());
    const env = { OUTLIVE_WORKSPACE: 'main' };
    const args = ['approve', ID, '--workspace', 'main'];
    const { stderr } = await outlive(args, { runtimeDirectory: daemon.runtimeDirectory, env });
    expect(stderr).toContain('outlive logs issue42 --follow\n');
  });
});

describe('outlive run --tool-policy', () => {
  let scratch: string;
  beforeAll(() => {
    scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-policy-'));
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));

  const POLICY = { rules: [{ effect: 'ask', tool: 'bash' }], otherwise: 'deny' };
  const run = (policy: string, ...more: string[]) => [
    ...['run', '--detach', '--cwd', '/', '--tool-policy', policy, ...more],
    ...['--', 'fix it'],
  ];

  async function submitted(policy: string): Promise<unknown> {
    const daemon = await serve((_, response) => json(response, 201, aWorkUnit()));
    const ended = await outlive(run(policy), {
      runtimeDirectory: daemon.runtimeDirectory,
      cwd: scratch,
    });
    expect(ended, ended.stderr).toMatchObject({ code: 0 });
    return (JSON.parse(daemon.requests[0]?.body ?? '{}') as Record<string, unknown>)['toolPolicy'];
  }

  it('takes a file, by any path, or the JSON itself', async () => {
    const file = path.join(scratch, 'policy.json');
    writeFileSync(file, `\n ${JSON.stringify(POLICY)}\n`);
    expect(await submitted(file)).toEqual(POLICY);
    expect(await submitted('policy.json')).toEqual(POLICY);
    expect(await submitted(JSON.stringify(POLICY))).toEqual(POLICY);
    expect(await submitted(` ${JSON.stringify(POLICY)}`)).toEqual(POLICY);
  });

  it.each<[string, string[], string]>([
    ['broken JSON', run('{"rules":'), '--tool-policy is not valid JSON: '],
    ['a missing file', run('nowhere.json'), '--tool-policy cannot be read: ENOENT'],
    ['a directory', run('/'), '--tool-policy cannot be read: EISDIR'],
    ['an unknown key', run('{"rule":[]}'), '--tool-policy: '],
    ['an unknown effect', run('{"otherwise":"maybe"}'), '--tool-policy: '],
    [
      'an expression that does not compile',
      run('{"rules":[{"effect":"ask","tool":"bash","argument":{"pattern":"("}}]}'),
      '--tool-policy: is not a regular expression',
    ],
    [
      'a command, before which nobody stands',
      run('{}', '--runner', 'command'),
      '--tool-policy is for --runner pi',
    ],
    ['nothing', run(''), '--tool-policy cannot be read'],
  ])('refuses %s with exit status 2, and needs no daemon for it', async (_what, args, said) => {
    const { code, stdout, stderr } = await outlive(args, { cwd: scratch });
    expect(stderr).toContain(said);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  });

  it('refuses a file that is no JSON', async () => {
    writeFileSync(path.join(scratch, 'words.txt'), 'ask before bash');
    const { code, stderr } = await outlive(run('words.txt'), { cwd: scratch });
    expect(stderr).toContain('--tool-policy is not valid JSON');
    expect(code).toBe(2);
  });
});
