/**
 * `node sandbox-probe.js KIND DIRECTORY`: what of a sandbox works, tried from the inside by the
 * code that would open it. Run as an attempt would be: for KIND `unit` in a unit with the
 * properties of one that hides DIRECTORY/hidden, for `plain` as a process of the person.
 *
 * Writes DIRECTORY/result.json, a SandboxAbility. What cannot even write that has none.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { SandboxAbility } from '../domain/sandbox.ts';
import { openNest } from './nest.ts';

/** One look around takes milliseconds. */
const LOOK_MS = 3_000;

const [, , kind = '', directory = ''] = process.argv;
const unit = kind === 'unit' ? unitProblem() : 'plain processes have no unit';
const nest = await nestProblem();
const ability: SandboxAbility = {
  unit: unit === null,
  nest: nest === null,
  why: nest ?? (kind === 'unit' ? unit : null),
};
// Whole or not there: whoever waits for it may look at any time.
const file = path.join(directory, 'result.json');
writeFileSync(`${file}.new`, JSON.stringify(ability));
renameSync(`${file}.new`, file);

/** What of the unit's own sandbox does not hold; null when all does. */
function unitProblem(): string | null {
  if (isReadable(path.join(directory, 'hidden', 'secret'))) {
    return 'systemd hides nothing in user units here (PrivateUsers= has no effect)';
  }
  const groups = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => / - cgroup2? /.test(line));
  return groups.every((line) => /^(\S+ ){5}ro[ ,]/.test(line))
    ? null
    : 'control groups stay writable in user units here (ProtectControlGroups= has no effect)';
}

function isReadable(file: string): boolean {
  try {
    return readFileSync(file, 'utf8') !== '';
  } catch {
    return false;
  }
}

/** What of a nest does not work; null when all does. */
async function nestProblem(): Promise<string | null> {
  const covered = path.join(directory, 'covered');
  const places = { hidden: [covered], veiled: [], readOnly: [] };
  try {
    const nest = await openNest(places, { cwd: '/', without: [] });
    try {
      return look(nest.enter, covered);
    } finally {
      await nest.close();
    }
  } catch (error) {
    return (error as Error).message;
  }
}

/** Looks around from the inside. */
function look(enter: readonly string[], covered: string): string | null {
  const see =
    'id -u; cat "$0/secret" 2>/dev/null; grep -lqs sandbox-prob[e] /proc/[0-9]*/cmdline && echo process; [ -w /sys/fs/cgroup/cgroup.procs ] && echo group; echo end';
  const argv = [...enter, '/bin/sh', '-c', see, covered];
  const [program = '', ...args] = argv;
  const said = execFileSync(program, args, {
    cwd: '/',
    env: { PATH: '/usr/bin:/bin' },
    timeout: LOOK_MS,
    killSignal: 'SIGKILL',
    encoding: 'utf8',
  });
  const expected = `${process.getuid?.() ?? 0}\nend\n`;
  return said === expected
    ? null
    : `a nest opens and is not tight: it sees ${JSON.stringify(said)}`;
}
