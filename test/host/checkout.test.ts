import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { hostName, needsRoot, root, run, tinyCheckout } from './support.ts';

/** Modes, times and contents of a tree. */
const snapshot = (dir: string) =>
  execFileSync(
    'sh',
    [
      '-c',
      'find . -printf "%M %u %T@ %C@ %p\\n" | sort; find . -type f | sort | xargs -d "\\n" cat',
    ],
    {
      cwd: dir,
      encoding: 'utf8',
    },
  );

describe.skipIf(!root)(`the checkout inside a host${needsRoot}`, () => {
  it('is readable though it was made with umask 077 under a 0700 directory, and stays as it was', async () => {
    const { top, repo, host } = tinyCheckout();
    writeFileSync(join(repo, 'tool'), '#!/bin/sh\necho the tool runs\n', { mode: 0o700 });
    writeFileSync(join(repo, 'text'), 'text\n');
    execFileSync('chmod', ['-R', 'go=', repo]);
    chmodSync(top, 0o700);
    const before = snapshot(repo);
    const script = 'cat text; ./tool; ls ops/scripts/lib >/dev/null; ! echo x >text; ! touch new';
    const { code, stdout, stderr } = await run(['run', '--', 'sh', '-ec', script], {
      command: host,
    });
    expect({ code, stdout }, stderr).toEqual({ code: 0, stdout: 'text\nthe tool runs\n' });
    expect(snapshot(repo)).toBe(before);
  });

  it('is live where everybody may read it: an edit outside is seen inside', async () => {
    const { top, repo, host } = tinyCheckout();
    chmodSync(top, 0o700);
    const name = hostName();
    const inside = (script: string) =>
      run(['exec', name, '--', 'sh', '-c', script], { command: host });
    expect((await run(['up', name], { command: host })).code).toBe(0);
    expect((await inside('cat later')).code).toBe(1);
    writeFileSync(join(repo, 'later'), 'added\n');
    expect((await inside('cat later')).stdout).toBe('added\n');
  });

  it('can be on another file system, with a mount of its own below it', async () => {
    const { top, repo, host } = tinyCheckout();
    // In a mount namespace, so that the machine never sees these mounts.
    const script = `
      mkdir "$1/fs" && mount -n -t tmpfs outlive-test "$1/fs" && cp -r "$2" "$1/fs/repo" && cd "$1/fs/repo" &&
      mkdir node_modules && mount -n -t tmpfs outlive-test node_modules && echo module >node_modules/m &&
      ops/scripts/host run -- cat node_modules/m && chmod 600 node_modules/m && chmod 700 node_modules &&
      ops/scripts/host run -- cat node_modules/m && stat -c %a node_modules/m`;
    const { code, stdout, stderr } = await run(
      ['--mount', '--propagation', 'private', 'sh', '-c', script, 'sh', top, repo],
      { command: 'unshare' },
    );
    expect({ code, stdout }, stderr).toEqual({ code: 0, stdout: 'module\nmodule\n600\n' });
    expect(host).toContain(top);
  });

  it('is readable also when the caller has umask 077', async () => {
    const { code, stdout, stderr } = await run(
      ['-c', `umask 077; exec "$0" run -- sh -c umask`, tinyCheckout().host],
      {
        command: 'sh',
      },
    );
    expect({ code, stdout }, stderr).toEqual({ code: 0, stdout: '0022\n' });
  });
});
