/** The nest as the wrapper opens it, and what becomes of an attempt that cannot have one. */
import { execFile, spawn } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Nest, openNest } from '../../src/attempt/nest.ts';
import type { NestSpec } from '../../src/attempt/nest-mounts.ts';
import type { SandboxSpec } from '../../src/domain/attempt-files.ts';
import { namespaces, needsNamespaces } from '../support/namespaces.ts';
import { isAlive, makeLab, makeShellLab } from './support/lab.ts';

const run = promisify(execFile);

function scratch(): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-nest-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

async function nestIn(
  directory: string,
  changes: Partial<NestSpec> = {},
  without: readonly string[] = [],
): Promise<Nest> {
  const spec = { hidden: [], veiled: [], readOnly: [], ...changes };
  const nest = await openNest(spec, { cwd: directory, without });
  onTestFinished(() => nest.close());
  return nest;
}

const ENVIRONMENT = { PATH: process.env['PATH'] ?? '', A: 'b c', KEY: 'secret', EMPTY: '' };

/** What a shell line prints inside. */
async function inside({ enter }: Nest, line: string, cwd: string): Promise<string> {
  const [program, ...args] = [...enter, '/bin/sh', '-c', line];
  return (await run(program, args, { cwd, env: ENVIRONMENT })).stdout.trim();
}

describe.skipIf(!namespaces)(`a nest${needsNamespaces}`, () => {
  test('keeps what one command started for the next one, and ends it when it is closed', async () => {
    const directory = scratch();
    const nest = await nestIn(directory);
    const serve = `require("net").createServer((s) => s.end("hello")).listen("server.sock", () => console.log(process.pid))`;
    const start = `node -e '${serve}' > pid 2>&1 & until [ -s pid ]; do sleep 0.02; done; cat pid`;
    const pid = await inside(nest, start, directory);
    const ask = `node -e 'require("net").connect("server.sock").on("data", (d) => console.log(String(d)))'`;
    expect(await inside(nest, ask, directory)).toBe('hello');
    expect(await inside(nest, `cat /proc/${pid}/comm`, directory)).toMatch(/node|MainThread/);
    const pids = [...nest.pids];
    expect(pids).toHaveLength(2);
    const began = performance.now();
    await nest.close();
    expect(performance.now() - began).toBeLessThan(1_000);
    expect(pids.filter(isAlive)).toEqual([]);
    const server = await run('sh', ['-c', 'grep -ls "[s]erver.sock" /proc/[0-9]*/cmdline || true']);
    expect(server.stdout).toBe('');
    await expect(inside(nest, 'true', directory)).rejects.toThrow('nsenter');
  });

  test('shows one directory in a hidden one: to be written in, and nothing else is there', async () => {
    const root = scratch();
    for (const name of ['tree', 'state/tmp/mine', 'state/tmp/others', 'state/store']) {
      mkdirSync(path.join(root, name), { recursive: true });
    }
    const mine = path.join(root, 'state/tmp/mine');
    writeFileSync(path.join(mine, 'before'), 'here');
    const spec = { hidden: [path.join(root, 'state')], shown: mine };
    const tree = path.join(root, 'tree');
    const nest = await nestIn(tree, spec);
    const seen = await inside(
      nest,
      `cat ${mine}/before; echo new >${mine}/after; echo
       test -e ${root}/state/store && echo seen || echo gone
       test -e ${root}/state/tmp/others && echo seen || echo gone
       mkdir ${root}/state/x 2>/dev/null && echo open || echo closed`,
      tree,
    );
    expect(seen.split('\n')).toEqual(['here', 'gone', 'gone', 'closed']);
    expect(readdirSync(mine).toSorted()).toEqual(['after', 'before']);
    expect(nest.paths.shown).toEqual([mine]);
  });

  test('changes neither directory nor environment, but for PWD and keys', async () => {
    const directory = path.join(scratch(), 'a b $c "d"');
    mkdirSync(directory);
    const nest = await nestIn(directory, {}, ['KEY']);
    expect(await inside(nest, 'pwd -P', directory)).toBe(directory);
    const { KEY: _key, ...kept } = ENVIRONMENT;
    // Where it is, said by the first shell on the way.
    const rest = { ...kept, PWD: directory };
    const [program, ...args] = [...nest.enter, 'env', '--null'];
    const { stdout } = await run(program, args, { cwd: directory, env: ENVIRONMENT });
    const variables = stdout.split('\0').filter(Boolean);
    expect(variables.toSorted()).toEqual(
      Object.entries(rest)
        .map(([name, value]) => `${name}=${value}`)
        .toSorted(),
    );
  });

  test('hands exit status and signals on', async () => {
    const directory = scratch();
    const nest = await nestIn(directory);
    const end = (line: string) =>
      inside(nest, line, directory).catch(({ code, signal }) => [code, signal] as const);
    expect(await end('exit 7')).toEqual([7, null]);
    expect(await end('kill -KILL $$')).toEqual([null, 'SIGKILL']);
    expect(await end('kill -SEGV $$')).toEqual([null, 'SIGSEGV']);
    expect(await end('exec nothing-of-this-name')).toEqual([127, null]);
  });

  test('signals to the group of a command reach the command, and its end is waited for', async () => {
    const directory = scratch();
    const nest = await nestIn(directory);
    const line = 'trap "echo told; exit 4" TERM; echo up; while :; do sleep 0.02; done';
    const [program, ...args] = [...nest.enter, '/bin/sh', '-c', line];
    const child = spawn(program, args, { cwd: directory, env: ENVIRONMENT, detached: true });
    let said = '';
    const code = await new Promise((resolve) => {
      child.once('close', resolve);
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        said += text;
        if (text === 'up\n') process.kill(-(child.pid ?? 0), 'SIGTERM');
      });
    });
    expect([said, code]).toEqual(['up\ntold\n', 4]);
  });

  test('gives a command nothing more to hold open than it would have without', async () => {
    const directory = scratch();
    const nest = await nestIn(directory);
    const line = 'ls /proc/self/fd';
    const { stdout } = await run('/bin/sh', ['-c', line], { cwd: directory });
    expect(await inside(nest, line, directory)).toBe(stdout.trim());
  });

  test('is not opened over a work tree that it would hide', async () => {
    const directory = scratch();
    await expect(nestIn(directory, { hidden: [path.dirname(directory)] })).rejects.toThrow(
      /the work tree .* is hidden/,
    );
  });

  test('is given up at once when told to stop, and nothing of it is left', async () => {
    const directory = scratch();
    const controller = new AbortController();
    const opening = openNest(
      { hidden: [], veiled: [], readOnly: [] },
      { cwd: directory, without: [], mark: directory, signal: controller.signal },
    );
    controller.abort();
    await expect(opening).rejects.toThrow('told to stop');
    await expect.poll(() => marked(directory)).toEqual([]);
  });
});

/** Processes that carry the mark. */
async function marked(mark: string): Promise<string[]> {
  const line = 'grep -lszxF "OUTLIVE_MARK=$0" /proc/[0-9]*/environ || true';
  return (await run('sh', ['-c', line, mark])).stdout.split('\n').filter(Boolean);
}

const NEST: SandboxSpec = {
  mode: 'nest',
  demanded: true,
  weaker: null,
  hidden: [],
  veiled: [],
  readOnly: [],
};

/** Runs the wrapper where a shell line has changed the world for it alone. */
const world = (line: string): string[] => [
  ...['unshare', '--user', '--map-root-user', '--mount', '/bin/sh', '-c'],
  `${line}; exec "$@"`,
  'world',
];

/** A world in which a program of the system's is this script. */
function replaced(name: string, script: string): string[] {
  const program = path.join(scratch(), name);
  writeFileSync(program, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return world(`real=$(readlink -f /usr/bin/${name}); mount --bind ${program} "$real"`);
}

/** As where user namespaces are forbidden: the kernel's word for it. */
const withoutNamespaces = (): string[] =>
  replaced('unshare', 'echo "unshare: unshare failed: Operation not permitted" >&2; exit 1');

const hasSsh = existsSync('/usr/bin/ssh');
const needsSsh = hasSsh ? '' : ' (SKIPPED: needs ssh)';

describe.skipIf(!namespaces || !hasSsh)(`ssh${needsNamespaces}${needsSsh}`, () => {
  test('runs, though files of root belong to nobody in a nest', async () => {
    // As root we make one of somebody's who is nobody inside; else what belongs to root is.
    const mine = scratch();
    writeFileSync(path.join(mine, '50-distribution.conf'), '');
    const isRoot = process.getuid?.() === 0;
    if (isRoot) chownSync(path.join(mine, '50-distribution.conf'), 12_345, 12_345);
    const configuration = isRoot ? mine : '/etc/ld.so.conf.d';
    const lab = await makeShellLab('exec ssh -TG localhost', { sandbox: NEST });
    const through = world(`mount --bind ${configuration} /etc/ssh/ssh_config.d`);
    const wrapper = lab.start({}, through);
    const { code } = await wrapper.ended;
    expect([code, await lab.read('stderr')]).toEqual([0, '']);
  });
});

describe.skipIf(!namespaces)(`an attempt whose nest cannot be opened${needsNamespaces}`, () => {
  test('that was demanded fails, typed, and nothing has run', async () => {
    const lab = await makeShellLab('echo ran > ran', { sandbox: NEST });
    const wrapper = lab.start({}, withoutNamespaces());
    expect(await wrapper.ended).toMatchObject({ code: 1 });
    const word = wrapper.spool.lines.at(-1)?.data;
    expect(word).toMatchObject({ verdict: 'error', code: 'sandbox_unavailable' });
    expect(word?.['message']).toMatch(/nest cannot be opened: unshare/);
    expect(readdirSync(lab.launch.cwd)).toEqual([]);
  });

  test('that was not demanded runs without, and says so', async () => {
    const lab = await makeShellLab('echo ran > ran', { sandbox: { ...NEST, demanded: false } });
    const wrapper = lab.start({}, withoutNamespaces());
    expect(await wrapper.ended).toMatchObject({ code: 0 });
    expect(readdirSync(lab.launch.cwd)).toEqual(['ran']);
    const said = wrapper.spool.lines.filter(({ type }) => type === 'progress');
    expect(said.map(({ data }) => data)).toMatchObject([
      { kind: 'sandbox_weaker', mode: 'unit', message: expect.stringContaining('unshare') },
    ]);
  });

  test('because the machine has none runs without, and says why', async () => {
    const weaker = { ...NEST, mode: 'off', demanded: false, weaker: 'no namespaces' } as const;
    const lab = await makeShellLab('true', { sandbox: weaker });
    const { lines } = await lab.run();
    expect(lines.find(({ type }) => type === 'progress')?.data).toMatchObject({
      kind: 'sandbox_weaker',
      mode: 'off',
      message: expect.stringContaining('no namespaces'),
    });
  });
});

describe.skipIf(!namespaces)(`a command in a nest${needsNamespaces}`, () => {
  test.each(['no-such-program', '/no/such/program', './no-such'])(
    'X24: %s, which is not there, is a spawn error with 127, and nothing was started',
    async (program) => {
      const lab = await makeLab(() => ({ kind: 'command', argv: [program] }), { sandbox: NEST });
      const { code, lines, word } = await lab.run();
      expect(code).toBe(1);
      expect(word).toMatchObject({ code: 'spawn_error', exitCode: 127 });
      expect(word.message).toContain(program);
      expect(lines.map(({ type }) => type)).not.toContain('started');
    },
  );

  test('is found on its own PATH, in its own directory', async () => {
    const environment = { PATH: 'bin:/usr/bin:/bin' };
    const lab = await makeLab(() => ({ kind: 'command', argv: ['own'] }), {
      sandbox: NEST,
      environment,
    });
    mkdirSync(path.join(lab.launch.cwd, 'bin'));
    writeFileSync(path.join(lab.launch.cwd, 'bin/own'), '#!/bin/sh\necho ours\n', { mode: 0o755 });
    expect((await lab.run()).word).toMatchObject({ verdict: 'ok', text: 'ours\n' });
  });
});

describe.skipIf(!namespaces)(`an attempt whose nest does not get done${needsNamespaces}`, () => {
  /** A mount(8) that hangs, with something to mount. */
  function hanging(): { sandbox: SandboxSpec; through: string[] } {
    const sandbox = { ...NEST, hidden: [scratch()] };
    return { sandbox, through: replaced('mount', 'exec sleep 60') };
  }

  test('is given up after five seconds', async () => {
    const { sandbox, through } = hanging();
    const lab = await makeShellLab('echo ran > ran', { sandbox });
    const wrapper = lab.start({}, through);
    expect(await wrapper.ended).toMatchObject({ code: 1 });
    expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({
      code: 'sandbox_unavailable',
      message: expect.stringContaining('did not open within 5 s'),
    });
    expect(readdirSync(lab.launch.cwd)).toEqual([]);
  });

  test('is stopped as any other', async () => {
    const { sandbox, through } = hanging();
    const lab = await makeShellLab('echo ran > ran', { sandbox });
    const wrapper = lab.start({}, through);
    await wrapper.event('attempt.opened');
    wrapper.kill('SIGTERM');
    expect(await wrapper.ended).toMatchObject({ signal: 'SIGTERM' });
    expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'stopped' });
    expect(readdirSync(lab.launch.cwd)).toEqual([]);
  });
});
