/** The probe of a sandbox, where there is none to be found. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import type { SandboxAbility } from '../../src/domain/sandbox.ts';
import { namespaces, needsNamespaces } from '../support/namespaces.ts';

const PROBE = path.resolve(import.meta.dirname, '../../src/attempt/sandbox-probe.ts');

/** What the probe finds, run by `through`. */
async function probed(kind: string, through: readonly string[] = []): Promise<SandboxAbility> {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-probe-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  for (const name of ['hidden', 'covered']) {
    mkdirSync(path.join(directory, name));
    writeFileSync(path.join(directory, name, 'secret'), 'secret\n');
  }
  const [program, ...args] = [...through, process.execPath, PROBE, kind, directory];
  await promisify(execFile)(program, args);
  return JSON.parse(readFileSync(path.join(directory, 'result.json'), 'utf8')) as SandboxAbility;
}

test('settings of a unit that have no effect are found out; T11 systemd#9870', async () => {
  const { unit, nest, why } = await probed('unit');
  expect([unit, nest]).toEqual([false, namespaces]);
  // What stands in the way of a nest comes first: it stands in the way of the unit too.
  expect(why).toMatch(namespaces ? 'hides nothing' : 'unshare');
});

test.skipIf(!namespaces)(`a process without a unit can have a nest${needsNamespaces}`, async () => {
  expect(await probed('plain')).toEqual({ unit: false, nest: true, why: null });
});

test.skipIf(!namespaces)(
  `where namespaces are forbidden there is none${needsNamespaces}`,
  async () => {
    const script = 'echo "unshare: unshare failed: Operation not permitted" >&2; exit 1';
    const fake = path.join(mkdtempSync(path.join(tmpdir(), 'outlive-probe-')), 'unshare');
    onTestFinished(() => rmSync(path.dirname(fake), { recursive: true }));
    writeFileSync(fake, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const world = `mount --bind ${fake} "$(readlink -f /usr/bin/unshare)"; exec "$@"`;
    const through = [
      'unshare',
      '--user',
      '--map-root-user',
      '--mount',
      '/bin/sh',
      '-c',
      world,
      'x',
    ];
    expect(await probed('plain', through)).toEqual({
      unit: false,
      nest: false,
      why: 'unshare: unshare failed: Operation not permitted',
    });
  },
);
