/** The page about drivers, with its example done as it says. */
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { untilDriverIs } from '../support/driver-watch.ts';
import { Rig, ROOT, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create({ withoutSystemd: true });
});
afterEach(() => rig.end());

describe('the page for people', () => {
  it('has an example that works as it is pasted', async () => {
    await rig.startDaemon();
    const page = readFileSync(path.join(ROOT, 'docs/drivers.md'), 'utf8');
    const example = /```sh\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
    expect(example).toContain('outlive driver add tasks');
    const bin = path.join(rig.base, 'outlive-bin');
    mkdirSync(bin);
    const line = `exec "${process.execPath}" -- "${ROOT}/dist/cli.js" "$@"`;
    writeFileSync(path.join(bin, 'outlive'), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
    const env = { ...rig.env, PATH: `${bin}:${rig.env['PATH']}` };
    const pasted = promisify(execFile)('sh', ['-e', '-c', example], { env, cwd: rig.base });
    const { stdout } = await within('the example', pasted);
    expect(stdout).toContain('tasks  active');
    const { subjects } = await untilDriverIs(
      rig,
      'tasks',
      'both tasks to be verified',
      (driver) => driver.subjects.filter(({ outcome }) => outcome === 'satisfied').length === 2,
    );
    expect(subjects.map(({ subject }) => subject).sort()).toEqual(['folder:one', 'folder:two']);
    expect(readdirSync(path.join(rig.base, 'tasks/done')).sort()).toEqual(['one', 'two']);
  });
});
