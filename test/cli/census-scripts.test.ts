/** The censuses that come with outlive, as a driver would run them; `gh` is a double that checks what it is asked. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { startWorkUnitSchema } from '../../src/domain/request.ts';
import { launch, root } from './outlive.ts';

let place: string;
beforeEach(() => {
  place = mkdtempSync(path.join(os.tmpdir(), 'outlive-census-'));
  onTestFinished(() => rmSync(place, { recursive: true, force: true }));
});

const at = (...names: string[]): string => path.join(place, ...names);
const census = (name: string, args: readonly string[], env: Record<string, string> = {}) =>
  launch(path.join(root, 'ops/census', name), args, { cwd: place, env }).ended;

interface Line {
  readonly handle: string;
  readonly subject: string;
  readonly title: string;
  readonly cwd?: string;
  readonly vars: Readonly<Record<string, string>>;
}

/** The lines, each fit for a work unit. */
function lines(stdout: string): Line[] {
  const all = stdout.split('\n');
  expect(all.pop(), 'what follows the last line end').toBe('');
  return all.map((text) => {
    const line = JSON.parse(text) as Line;
    const environment = Object.entries(line.vars).map(([name, value]) => [
      `OUTLIVE_VAR_${name}`,
      value,
    ]);
    startWorkUnitSchema.parse({
      runnerId: 'command',
      ownerId: 'census',
      argv: ['true'],
      handle: line.handle,
      externalSubject: line.subject,
      environment: Object.fromEntries(environment) as Record<string, string>,
    });
    return line;
  });
}

describe('every census', () => {
  it.each(['folder', 'github-issues', 'github-pulls'])(
    '%s says how it is used, and refuses what it does not know',
    async (name) => {
      const help = await census(name, ['--help']);
      expect(help).toMatchObject({ code: 0, stderr: '' });
      expect(help.stdout).toContain(`Usage: ops/census/${name} `);
      const wrong = await census(name, ['--wrong']);
      expect(wrong).toMatchObject({ code: 2, stdout: '' });
      expect(wrong.stderr).toContain('--wrong');
      execFileSync('sh', ['-n', path.join(root, 'ops/census', name)]);
      expect(readFileSync(path.join(root, 'dist/ops/census', name)), 'what is installed').toEqual(
        readFileSync(path.join(root, 'ops/census', name)),
      );
    },
  );
});

describe('a folder', () => {
  beforeEach(() => {
    mkdirSync(at('todo/directory'), { recursive: true });
    mkdirSync(at('done'));
  });
  const todo = (name: string, text: string | Uint8Array): void =>
    writeFileSync(at('todo', name), text);
  const withFile = (name: string): string[] => {
    todo(name, '');
    return [place];
  };

  it('is each file of todo that is not in done, in the order of names', async () => {
    todo('b-second.md', '\n  ## The "second"\tone \\ é\n\nmore\n');
    todo('a-first', '');
    todo('c-done.md', 'done');
    todo('.hidden', 'no');
    writeFileSync(at('done/c-done.md'), '');
    const { code, stdout, stderr } = await census('folder', ['--cwd', '.', 'todo/..']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const line = (name: string, handle: string, title: string): Line => ({
      handle,
      subject: `file:${at('todo', name)}`,
      title,
      cwd: place,
      vars: { FILE: at('todo', name) },
    });
    expect(lines(stdout)).toEqual([
      line('a-first', 'a-first', 'a-first'),
      line('b-second.md', 'b-second', 'The "second" one \\ é'),
    ]);
  });

  it('gives every name a handle of its own, and a title that is text', async () => {
    todo('Fix THE login.md', Buffer.from([0x41, 0xff, 0x0a]));
    todo('fix-the-login.md', `${'long '.repeat(100)}\n`);
    todo('fix_the_login.md', 'x');
    todo('---.md', '#\n#\nfound\n');
    todo(`${'n'.repeat(80)}.md`, 'x');
    todo('it’s "é" $(x) \\.md', 'x');
    const { code, stdout } = await census('folder', [place]);
    expect(code).toBe(0);
    const all = lines(stdout);
    expect(new Set(all.map(({ handle }) => handle)).size).toBe(6);
    const of = (name: string): Line | undefined =>
      all.find(({ vars }) => vars['FILE'] === at('todo', name));
    expect(of('fix-the-login.md')).toMatchObject({
      handle: 'fix-the-login',
      title: 'fix-the-login.md',
    });
    expect(of('fix_the_login.md')?.handle).toMatch(/^fix-the-login-\d+$/);
    expect(of('Fix THE login.md')).toMatchObject({ title: 'Fix THE login.md' });
    expect(of('---.md')).toMatchObject({
      handle: expect.stringMatching(/^\d+$/) as string,
      title: 'found',
    });
    expect(of('it’s "é" $(x) \\.md')).toBeDefined();
  });

  it('of which nothing is to be done is no line, exit 0', async () => {
    expect(await census('folder', [place])).toMatchObject({ code: 0, stdout: '', stderr: '' });
  });

  it.each([
    ['that is not there', () => ['nowhere'], 1, 'there is no directory nowhere'],
    ['without todo', () => ['done'], 1, 'done/todo is no directory'],
    ['of which none is named', () => [], 2, 'say which directory'],
    ['with a name that is no text', () => withFile('a\nb'), 1, 'a name that is no text'],
    [
      'with a path too long for a subject',
      () => withFile('n'.repeat(250)),
      1,
      'longer than a subject',
    ],
  ])('%s fails, with nothing printed', async (_, args, code, said) => {
    todo('a-good-one', 'x');
    const ended = await census('folder', args());
    expect(ended).toMatchObject({ code, stdout: '' });
    expect(ended.stderr).toContain(said);
  });
});

// gh has a jq of its own; its double borrows the machine's.
const hasJq = spawnSync('sh', ['-c', 'command -v jq']).status === 0;
const needsJq = hasJq ? '' : ' (SKIPPED: needs jq)';

/** A gh that notes its arguments and what it must not be without, and does with a recording what `--jq` says. */
function recorded(answer: unknown, status = 0): Record<string, string> {
  mkdirSync(at('bin'), { recursive: true });
  writeFileSync(at('answer.json'), JSON.stringify(answer));
  const script = `#!/bin/sh
[ "$GH_PROMPT_DISABLED" = 1 ] || { echo 'it might ask' >&2; exit 9; }
for argument; do printf '%s\\0' "$argument"; done >'${at('asked')}'
[ ${status} = 0 ] || { echo 'words of gh' >&2; exit ${status}; }
while [ "$1" != --jq ]; do shift; done
exec jq -r "$2" '${at('answer.json')}'
`;
  writeFileSync(at('bin/gh'), script, { mode: 0o755 });
  return { PATH: `${at('bin')}:${process.env['PATH'] ?? ''}` };
}

/** What gh was asked, without the text of its filter. */
function asked(): string[] {
  const all = readFileSync(at('asked'), 'utf8').split('\0').slice(0, -1);
  return all.filter((_, index) => all[index - 1] !== '--jq');
}

const ISSUES = [
  { number: 42, title: 'Login "fails" \\ at\nnight', url: 'https://github.com/acme/app/issues/42' },
  { number: 7, title: 'é', url: 'https://code.example.com/acme/app/issues/7' },
];
const PULLS = [
  {
    number: 9,
    title: 'Draft',
    url: 'https://github.com/acme/app/pull/9',
    headRefName: 'd',
    isDraft: true,
  },
  {
    number: 8,
    title: 'Mend it',
    url: 'https://github.com/acme/app/pull/8',
    headRefName: 'mend/it',
    isDraft: false,
  },
];

describe.skipIf(!hasJq)(`GitHub${needsJq}`, () => {
  it('issues are asked for as told, and each is a line', async () => {
    const env = recorded(ISSUES);
    const args = ['--repo', 'acme/app', '--label=two words', '--limit', '5', '--label', 'agent'];
    const { code, stdout, stderr } = await census('github-issues', args, env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(asked()).toEqual(
      [
        'issue',
        'list',
        '--state',
        'open',
        '--limit',
        '5',
        '--json',
        'number,title,url',
        '--jq',
      ].concat(['--label', 'two words', '--label', 'agent', '--repo', 'acme/app']),
    );
    const [first, second] = lines(stdout);
    expect(first).toEqual({
      handle: 'issue42',
      subject: 'github:acme/app#42',
      title: ISSUES[0]?.title,
      vars: { NUMBER: '42', URL: ISSUES[0]?.url, TITLE: ISSUES[0]?.title, BRANCH: 'issue42' },
    });
    expect(second).toMatchObject({
      handle: 'issue7',
      subject: 'github:code.example.com/acme/app#7',
    });
  });

  it('pull requests have the branch they come from, and drafts are left out when told so', async () => {
    const env = recorded(PULLS);
    const all = await census('github-pulls', [], env);
    expect(all).toMatchObject({ code: 0, stderr: '' });
    expect(asked()).toEqual(
      ['pr', 'list', '--state', 'open', '--limit', '100', '--json'].concat([
        'number,title,url,headRefName,isDraft',
        '--jq',
      ]),
    );
    expect(lines(all.stdout).map(({ handle }) => handle)).toEqual(['pr9', 'pr8']);
    const ready = await census('github-pulls', ['--no-drafts'], env);
    expect(lines(ready.stdout)).toEqual([
      {
        handle: 'pr8',
        subject: 'github:acme/app#8',
        title: 'Mend it',
        vars: { NUMBER: '8', URL: PULLS[1]?.url, TITLE: 'Mend it', BRANCH: 'mend/it' },
      },
    ]);
  });

  it.each(['github-issues', 'github-pulls'])(
    '%s of which there is none is no line, exit 0',
    async (name) => {
      expect(await census(name, [], recorded([]))).toMatchObject({
        code: 0,
        stdout: '',
        stderr: '',
      });
    },
  );
});

describe.each(['github-issues', 'github-pulls'])('%s', (name) => {
  it('fails with a sentence when gh is not logged in, or fails otherwise', async () => {
    const out = await census(name, [], recorded([], 4));
    expect(out).toMatchObject({ code: 1, stdout: '' });
    expect(out.stderr).toContain('gh is not logged in; run "gh auth login"');
    const broken = await census(name, [], recorded([], 1));
    expect(broken).toMatchObject({ code: 1, stdout: '' });
    expect(broken.stderr).toMatch(/words of gh\n.*gh (issue|pr) list failed with status 1/s);
  });

  it('fails with a sentence when there is no gh', async () => {
    mkdirSync(at('bin'));
    for (const program of ['sh', 'readlink', 'dirname']) {
      const found = execFileSync('sh', ['-c', `command -v ${program}`], {
        encoding: 'utf8',
      }).trim();
      execFileSync('ln', ['-s', found, at('bin', program)]);
    }
    const none = await census(name, [], { PATH: at('bin') });
    expect(none).toMatchObject({ code: 1, stdout: '' });
    expect(none.stderr).toContain('there is no gh on PATH');
  });

  it.each([
    [['--limit', '0']],
    [['--limit', '10000']],
    [['--limit']],
    [['--repo', 'app']],
    [['--repo', '-x/y']],
    [['--repo', 'a/b/c/d']],
    [['--label=']],
    [['--']],
    [['42']],
  ])('refuses %j, exit 2, and asks nothing', async (args) => {
    const refused = await census(name, args, recorded([], 9));
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).not.toContain('words of gh');
  });
});
