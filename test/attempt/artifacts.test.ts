/** What an attempt leaves for people to read: transcript and diff, with a real Pi and a real git. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { ATTEMPT_FILES, DIFF_CUT } from '../../src/domain/attempt-files.ts';
import { type Lab, makeShellLab } from './support/lab.ts';
import { makePiLab } from './support/pi-lab.ts';

const IDENTITY = ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.org'];

function git(cwd: string, ...args: readonly string[]): string {
  const env = { PATH: process.env['PATH'], HOME: cwd, GIT_CONFIG_NOSYSTEM: '1' };
  return execFileSync('git', [...IDENTITY, ...args], { cwd, env, encoding: 'utf8' });
}

/** Makes the lab's work tree a repository with these files committed. */
async function commit(lab: Lab, files: Readonly<Record<string, string>>): Promise<void> {
  const { cwd } = lab.launch;
  git(cwd, 'init', '-q');
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(cwd, name)), { recursive: true });
    await writeFile(path.join(cwd, name), text);
  }
  git(cwd, 'add', '-A');
  git(cwd, 'commit', '-q', '-m', 'before');
}

const diffFile = (lab: Lab): string => path.join(lab.directory, ATTEMPT_FILES.diff);

/** The diff without its statistics. */
async function patchOf(lab: Lab): Promise<string> {
  const text = await lab.read('diff');
  return text.slice(text.indexOf('diff --git'));
}

/** Every file below the repository's own directory with its content, to see that none was touched. */
function repositoryOf(cwd: string): Record<string, string> {
  const names = readdirSync(path.join(cwd, '.git'), { recursive: true, encoding: 'utf8' });
  return Object.fromEntries(
    names
      .map((name) => [name, path.join(cwd, '.git', name)] as const)
      .filter(([, file]) => statSync(file).isFile())
      .map(([name, file]) => [name, `${statSync(file).mtimeMs} ${readFileSync(file, 'latin1')}`]),
  );
}

describe('a run of Pi', () => {
  test('leaves a transcript: what the model said, each call on a line, cut results, how it ended', async () => {
    const { lab } = await makePiLab({
      script: [
        'think Hm. ;; say I will look. ;; bash echo first; seq 1 2000; echo last',
        'bash exit 3',
        'say All is\\nwell.',
      ],
    });
    await lab.run();
    const text = await lab.read('transcript');
    const lines = text.split('\n');
    expect(lines[0]).toBe('· Pi 1.6.0 with lab/scripted');
    expect(lines).toContain('I will look.');
    expect(lines).toContain('→ bash echo first; seq 1 2000; echo last');
    expect(text).toMatch(/^✓ bash \d+\.\d s\n {2}/m);
    expect(text).toMatch(/^ {2}\[… \d+ bytes cut …\]$/m);
    expect(lines).toContain('  last');
    expect(text).toMatch(/^✗ bash/m);
    expect(text).toContain('All is\nwell.\n');
    expect(text).toMatch(/\n· Ended: ok\n$/);
    expect(text).not.toContain('Hm.');
    expect(statSync(path.join(lab.directory, ATTEMPT_FILES.transcript)).mode & 0o777).toBe(0o600);
  });

  test('row 285: neither transcript nor diff holds a key of the run or a token of a known shape', async () => {
    const key = 'correct-horse-battery-staple';
    const token = `ghp_${'a1B2'.repeat(9)}`;
    const { lab } = await makePiLab({
      serverKey: key,
      pi: { apiKey: '$LAB_KEY' },
      launch: { credentialVariables: ['LAB_KEY'] },
      script: [`bash echo "$LAB_KEY" ${token} | tee leaked.txt`, `say it is ${key} ${token}`],
    });
    await lab.write('LAB_KEY', `${key}\n`);
    await commit(lab, { 'README.md': 'hello\n' });
    await lab.run({ CREDENTIALS_DIRECTORY: lab.root });
    const [transcript, diff] = [await lab.read('transcript'), await lab.read('diff')];
    expect(diff).toContain('+++ b/leaked.txt');
    for (const text of [transcript, diff]) {
      expect(text).toContain('[redacted LAB_KEY] [redacted]');
      expect(text).not.toContain(key);
      expect(text).not.toContain(token);
    }
  });

  test('has a TMPDIR of its own, where the whole of a long output lies', async () => {
    const { lab } = await makePiLab({
      script: [
        'bash seq 1 30000',
        'bash echo "at $TMPDIR"; stat -c %a "$TMPDIR"; wc -l < "$TMPDIR"/pi-bash-*.log',
        'say done',
      ],
    });
    const { lines, stderr } = await lab.run();
    const [long, shown] = lines.filter(({ type }) => type === 'tool.end');
    const { temporaryDirectory } = lab.launch;
    expect(String(long?.data['result'])).toContain(`${temporaryDirectory}/pi-bash-`);
    expect(shown?.data['result']).toBe(`at ${temporaryDirectory}\n700\n30000\n`);
    expect(stderr).toBe('');
  });

  test('without room for a TMPDIR of its own goes on with the one there is, and says so', async () => {
    const { lab } = await makePiLab({
      script: ['bash echo "at $(printenv TMPDIR || echo nowhere)"', 'say done'],
      launch: { temporaryDirectory: '/proc/nowhere/tmp' },
    });
    const { lines, stderr } = await lab.run();
    const end = lines.find(({ type }) => type === 'tool.end');
    expect(end?.data['result']).toBe('at nowhere\n');
    expect(stderr).toMatch(/^outlive-attempt: Pi runs without a TMPDIR of its own: .*ENOENT\n$/);
  });
});

describe('the diff of the work tree', () => {
  test('shows what changed during the run, untracked files included, and nothing of before', async () => {
    const lab = await makeShellLab(
      'echo two >> tracked; rm gone; echo new > sub/fresh; echo more >> draft; echo x > ignored.log; mv moved elsewhere; git -c user.name=a -c user.email=b commit -qam during',
    );
    await commit(lab, {
      tracked: 'one\n',
      gone: 'old\n',
      moved: 'a\nb\nc\nd\n',
      'sub/kept': 'k\n',
      '.gitignore': '*.log\n',
    });
    const { cwd } = lab.launch;
    await writeFile(path.join(cwd, 'dirty'), 'dirty before\n');
    await writeFile(path.join(cwd, 'draft'), 'draft before\n');
    await writeFile(path.join(cwd, 'sub/kept'), 'changed before\n');
    const { word, stderr } = await lab.run();
    expect({ verdict: word.verdict, stderr }).toEqual({ verdict: 'ok', stderr: '' });
    const patch = await patchOf(lab);
    expect(patch.match(/^diff --git .*/gm)).toEqual([
      'diff --git a/draft b/draft',
      'diff --git a/moved b/elsewhere',
      'diff --git a/gone b/gone',
      'diff --git a/sub/fresh b/sub/fresh',
      'diff --git a/tracked b/tracked',
    ]);
    expect(patch).toContain(' draft before\n+more\n');
    expect(patch).toContain('rename from moved\nrename to elsewhere\n');
    expect(patch).toContain('-old\n');
    expect(patch).toContain('+new\n');
    expect(existsSync(path.join(lab.directory, ATTEMPT_FILES.snapshot))).toBe(false);
  });

  test('leaves index, refs, objects and everything else of the repository as they were', async () => {
    const lab = await makeShellLab('echo two >> tracked; echo new > fresh');
    await commit(lab, { tracked: 'one\n' });
    await writeFile(path.join(lab.launch.cwd, 'untracked'), 'u\n');
    const before = repositoryOf(lab.launch.cwd);
    await lab.run();
    expect(await patchOf(lab)).toContain('+two\n');
    expect(repositoryOf(lab.launch.cwd)).toEqual(before);
  });

  test('runs nothing that the repository configures: hooks, filters, drivers, a monitor, a submodule of its own', async () => {
    const lab = await makeShellLab('echo two >> tracked; echo two >> sub/file; echo x > new.bin');
    const { cwd } = lab.launch;
    const ran = path.join(lab.root, 'ran');
    const trap = path.join(lab.root, 'trap.sh');
    await writeFile(trap, `#!/bin/sh\necho "$0 $*" >> ${ran}\nexec cat\n`);
    await chmod(trap, 0o755);
    await commit(lab, { tracked: 'one\n' });
    await mkdir(path.join(cwd, 'sub'));
    git(path.join(cwd, 'sub'), 'init', '-q');
    await writeFile(path.join(cwd, 'sub/file'), 'one\n');
    git(path.join(cwd, 'sub'), 'add', '-A');
    git(path.join(cwd, 'sub'), 'commit', '-q', '-m', 'sub');
    git(cwd, '-c', 'advice.addEmbeddedRepo=false', 'add', 'sub');
    await writeFile(path.join(cwd, '.gitattributes'), '* filter=trap diff=trap\n');
    git(cwd, 'add', '.gitattributes');
    git(cwd, 'commit', '-q', '-m', 'trapped');
    for (const repository of [cwd, path.join(cwd, 'sub')]) {
      for (const [key, value] of [
        ['core.fsmonitor', trap],
        ['core.hooksPath', lab.root],
        ['core.pager', trap],
        ['diff.external', trap],
        ['diff.trap.command', trap],
        ['diff.trap.textconv', trap],
        ['filter.trap.clean', trap],
        ['filter.trap.smudge', trap],
        ['core.alternateRefsCommand', trap],
        ['core.worktree', '/'],
      ] as const)
        git(repository, 'config', key, value);
    }
    await writeFile(path.join(lab.root, 'post-index-change'), readFileSync(trap));
    await chmod(path.join(lab.root, 'post-index-change'), 0o755);
    await lab.run();
    const patch = await patchOf(lab);
    expect(patch).toContain('+two\n');
    expect(patch).toContain('diff --git a/new.bin b/new.bin');
    expect(existsSync(ran) ? readFileSync(ran, 'utf8') : '').toBe('');
    // The traps were set: git as anybody runs it walks into them.
    git(cwd, 'config', '--unset', 'core.worktree');
    git(cwd, 'diff');
    expect(readFileSync(ran, 'utf8')).not.toBe('');
  });

  test('is cut with a sentence at its bound, before half a character', async () => {
    const lab = await makeShellLab('yes ééééééé | head -n 20000 > much', {
      captureBytes: 8192,
    });
    await commit(lab, { tracked: 'one\n' });
    await lab.run();
    const bytes = readFileSync(diffFile(lab));
    expect(bytes.length).toBeGreaterThanOrEqual(8192);
    expect(bytes.length).toBeLessThan(8192 + 200);
    const text = bytes.toString();
    expect(text).not.toContain('\ufffd');
    expect(text.trimEnd().split('\n').at(-1)).toBe(`${DIFF_CUT}it is longer than 8192 bytes …]`);
  });

  test('names files that are too large to be read, when they changed', async () => {
    const lab = await makeShellLab(
      'truncate -s 9M grown; truncate -s 10M "made now"; echo x >> small',
    );
    await commit(lab, { small: 's\n' });
    await writeFile(path.join(lab.launch.cwd, 'still'), Buffer.alloc(9 * 1024 * 1024));
    await writeFile(path.join(lab.launch.cwd, 'grown'), 'g\n');
    await lab.run();
    const last = (await lab.read('diff')).trimEnd().split('\n').at(-1);
    expect(last).toBe(`${DIFF_CUT}too large to be shown: grown, made now …]`);
    expect(await patchOf(lab)).toContain('+x\n');
  });

  test('takes the whole tree, from a directory within it, also of a linked work tree with an odd name', async () => {
    const lab = await makeShellLab('echo here > in; echo there > ../top');
    const main = path.join(lab.root, 'main "repo":1');
    await mkdir(main);
    git(main, 'init', '-q');
    await writeFile(path.join(main, 'file'), 'f\n');
    git(main, 'add', '-A');
    git(main, 'commit', '-q', '-m', 'first');
    const linked = path.join(lab.launch.cwd, 'linked');
    git(main, 'worktree', 'add', '-q', linked);
    const cwd = path.join(linked, 'deep');
    await mkdir(cwd);
    await lab.write('attempt/launch.json', JSON.stringify({ ...lab.launch, cwd }));
    await lab.run();
    expect((await patchOf(lab)).match(/^diff --git .*/gm)).toEqual([
      'diff --git a/deep/in b/deep/in',
      'diff --git a/top b/top',
    ]);
  });

  test('does not open what is no file, nor what may not be read', async () => {
    const lab = await makeShellLab(
      'rm tracked; mkfifo tracked fresh; ln -s /etc/passwd link; echo x > plain',
    );
    await commit(lab, { tracked: 'one\n', '.gitattributes': '' });
    const { word } = await lab.run();
    expect(word.verdict).toBe('ok');
    const patch = await patchOf(lab);
    expect(patch).toContain('+++ b/plain');
    expect(patch).toContain('+/etc/passwd');
    expect(patch).not.toContain('root:');
  });

  test.each([
    ['outside of any repository', () => Promise.resolve()],
    [
      'in a bare repository',
      (lab: Lab) => Promise.resolve(void git(lab.launch.cwd, 'init', '-q', '--bare')),
    ],
    [
      'in a work tree whose repository is gone',
      (lab: Lab) => writeFile(path.join(lab.launch.cwd, '.git'), 'gitdir: /nowhere/at/all\n'),
    ],
    [
      'with an index that is none',
      async (lab: Lab) => {
        await commit(lab, { file: 'f\n' });
        await writeFile(path.join(lab.launch.cwd, '.git/index'), 'nothing of the kind');
      },
    ],
    [
      'whose .git is a FIFO',
      (lab: Lab) =>
        Promise.resolve(void execFileSync('mkfifo', [path.join(lab.launch.cwd, '.git')])),
    ],
    [
      'whose .git leads in a circle',
      (lab: Lab) => symlink('.git', path.join(lab.launch.cwd, '.git')),
    ],
  ] as const)('%s there is none, and the run is none the worse', async (_, prepare) => {
    const lab = await makeShellLab('echo new > fresh');
    await prepare(lab);
    const { word } = await lab.run();
    expect(word.verdict).toBe('ok');
    expect(existsSync(diffFile(lab))).toBe(false);
    expect(existsSync(path.join(lab.directory, ATTEMPT_FILES.snapshot))).toBe(false);
  });

  test('without git there is none, and the run is none the worse', async () => {
    const lab = await makeShellLab('echo new > fresh', {
      environment: { PATH: '/nowhere', HOME: '/' },
    });
    await commit(lab, { file: 'f\n' });
    const { word, stderr } = await lab.run();
    expect({ verdict: word.verdict, stderr }).toEqual({ verdict: 'ok', stderr: '' });
    expect(existsSync(diffFile(lab))).toBe(false);
  });

  test('of nothing that changed there is none', async () => {
    const lab = await makeShellLab('touch file; cat file');
    await commit(lab, { file: 'f\n' });
    await lab.run();
    expect(existsSync(diffFile(lab))).toBe(false);
  });

  test('of a run that is stopped is made in what is left of its grace', async () => {
    const lab = await makeShellLab('echo new > fresh; echo up; sleep 600');
    await commit(lab, { file: 'f\n' });
    const wrapper = lab.start();
    await wrapper.event('stdout_delta');
    wrapper.kill('SIGTERM');
    expect((await wrapper.ended).signal).toBe('SIGTERM');
    expect(await patchOf(lab)).toContain('+++ b/fresh');
  });
});
