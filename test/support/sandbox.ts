/**
 * What a command in a nest tries against everything around it, and what must go on working.
 * Both tiers that boot an executor run all of it.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView, WorkUnitView } from '../../src/api/schemas.ts';
import type { ExecutorKind } from './conformance.ts';
import { namespaces, needsNamespaces } from './namespaces.ts';
import { appears, type DaemonProcess, type Rig, script } from './rig.ts';

/**
 * Shell that reaches out of the nest; every line is to fail, and every one works where there is
 * no sandbox (tested too). Variables are of facts().
 */
const REACHES: Readonly<Record<string, string>> = {
  'reads the token': 'cat "$STATE"/token/*',
  'reads the store': 'cat "$STATE"/store/*',
  'reads the token by a relative path': 'cat ../state/outlive/*/token/*',
  'reads another attempt': 'cat "$VICTIM_DIRECTORY/events.jsonl"',
  'reads its own launch file': 'cat "$DIRECTORY/launch.json"',
  'reads sessions': 'ls "$STATE/sessions"',
  'reads credentials of others': 'cat "$USER_RUNTIME"/planted/key "$RUNTIME"/planted/key',
  'reads the keys of Pi': 'grep key "$AGENT/auth.json" || grep -i key "$AGENT/models.json"',
  'asks the API': 'knock "$API"',
  'answers its own control socket': 'knock "$RUNTIME/$ATTEMPT/control.sock"',
  'writes a decision': 'echo {} >"$STATE/decisions/planted.json"',
  'forges its spool': 'echo >>"$DIRECTORY/events.jsonl"',
  'forges its exit record': 'echo "{}" >"$STATE/exits/planted.json"',
  'writes a unit':
    'mkdir -p "$HOME/.config/systemd/user" && echo >"$HOME/.config/systemd/user/evil.service"',
  'writes a unit where programs may':
    'mkdir -p "$HOME/.local/share/systemd/user" && echo >"$HOME/.local/share/systemd/user/evil.service"',
  'writes the configuration of outlive':
    'mkdir -p "$XDG_CONFIG_HOME/outlive" && echo "{}" >"$XDG_CONFIG_HOME/outlive/config.json"',
  'writes code that Pi loads from its cache':
    'mkdir -p "$NODE_COMPILE_CACHE" && echo >"$NODE_COMPILE_CACHE/evil"',
  'gives Pi an extension': 'mkdir -p "$AGENT/extensions" && echo >"$AGENT/extensions/evil.ts"',
  'signals its wrapper': 'kill -CONT "$WRAPPER"',
  'signals another attempt': 'kill -CONT "$VICTIM"',
  'sees the wrapper': 'cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep "attempt/[m]ain"',
  'reads the environment of the wrapper':
    'cat /proc/[0-9]*/environ | tr "\\0" "\\n" | grep "OUTLIVE_[N]ONCE"',
  // The same permission as to trace it, or to read its memory (man proc_pid_maps).
  'looks into the memory of the wrapper': 'cat "/proc/$WRAPPER/maps" | grep node',
  'moves the person’s configuration aside':
    'mkdir -p "$HOME/.config" && mv "$HOME/.config" "$HOME/.config.aside"',
};

/** The same, only that they would leave nothing to test with, or need more than a user has. */
const DEEDS: Readonly<Record<string, string>> = {
  'stops the daemon': 'kill -STOP "$DAEMON"',
  'moves the state aside': 'mv "$STATE_HOME" "$STATE_HOME.aside"',
  'moves what is above it aside': 'mv "$BASE" "$BASE.aside"',
  'joins another control group':
    'for group in $GROUPS_OF_CONTROL; do echo $$ >"$group/cgroup.procs" && exit 0; done; exit 1',
  'freezes another control group':
    'for group in $GROUPS_OF_CONTROL; do echo 1 >"$group/cgroup.freeze" && exit 0; done; exit 1',
  'takes a cover away': 'umount "$STATE_HOME/outlive"',
  'takes a cover away as root of a namespace of its own':
    'unshare --user --map-root-user --mount umount "$STATE_HOME/outlive"',
  'makes a cover writable':
    'unshare --user --map-root-user --mount mount -o remount,bind,rw "$HOME/.config/systemd"',
  'leaves through the first process': 'nsenter --target 1 --mount --user true',
};

/** Only where there is a manager. */
const SYSTEMD_REACHES: Readonly<Record<string, string>> = {
  'starts a unit':
    'XDG_RUNTIME_DIR="$USER_RUNTIME" DBUS_SESSION_BUS_ADDRESS="$BUS" systemd-run --user true',
  'starts a unit by the manager’s own socket':
    'XDG_RUNTIME_DIR="$USER_RUNTIME" systemctl --user status',
  'asks the system bus': 'knock /run/dbus/system_bus_socket',
  'talks to the journal': 'knock /run/systemd/journal/stdout',
  'joins the control group of another attempt': 'sh -c "echo $$ >"$VICTIM_GROUP/cgroup.procs""',
};

/** Every line is to succeed. */
const WORK: Readonly<Record<string, string>> = {
  'is the same user': '[ "$(id -u)" = "$USER_ID" ]',
  'is in the work tree': '[ "$(pwd -P)" = "$TREE" ]',
  'writes in the work tree': 'echo made >made.txt',
  'has git':
    'git init -q repository && cd repository && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first',
  'has npm': 'mkdir -p package && cd package && npm init --yes',
  'resolves names':
    'getent hosts localhost && node -e \'require("dns").lookup("localhost", (e) => process.exit(e ? 1 : 0))\'',
  'can make namespaces of its own': 'unshare --user --mount true',
  'has temporary files': 'rm "$(mktemp)"',
  'has /dev': 'head -c 1 /dev/urandom >/dev/null',
  // And none of anybody else's.
  'has terminals of its own':
    '[ "$(ls /dev/pts)" = ptmx ] && [ "$(script -qec tty /dev/null | tr -d "\\r")" = /dev/pts/0 ]',
  // Its first process has all orphans, and leaves no zombies.
  'reaps orphans': 'sh -c "sleep 0.05 & exit 0"; sleep 0.3; ! cat /proc/[0-9]*/stat | grep ") Z "',
};

const TRY = `
knock() {
  node -e 'const s = require("net").connect(process.argv[1]); s.on("connect", () => process.exit(0)); s.on("error", () => process.exit(1))' "$1"
}
try() {
  if (eval "$2") >said.txt 2>&1; then echo "$1: done"; else echo "$1: failed"; fi
}
`;

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const tries = (lines: Readonly<Record<string, string>>): string =>
  Object.entries(lines)
    .map(([name, line]) => `try ${quoted(name)} ${quoted(line)}`)
    .join('\n');

/** Groups that belong to others; every cgroup file system has its root. */
function controlGroups(pid: number): string[] {
  const roots = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .flatMap((line) => (/ - cgroup2? /.test(line) ? [line.split(' ')[4] ?? ''] : []));
  const own = readFileSync(`/proc/${pid}/cgroup`, 'utf8').match(/^0::(.*)$/m)?.[1] ?? '/';
  return [...roots, ...roots.map((root) => path.join(root, own))].filter(existsSync);
}

const opened = (rig: Rig, id: string): Promise<EventView> =>
  rig.waitForEvent(id, ({ type }) => type === 'attempt.opened', 'the first spool line');
const up = (rig: Rig, id: string): Promise<EventView> =>
  rig.waitForEvent(id, ({ type }) => type === 'stdout_delta', 'the command to be up');

const attemptOf = async (rig: Rig, { id }: WorkUnitView): Promise<string> =>
  (await rig.client.getWorkUnit(id)).attempts[0]?.id ?? '';

async function facts(
  rig: Rig,
  daemon: DaemonProcess,
  own: WorkUnitView,
  victim: WorkUnitView,
): Promise<Record<string, string>> {
  const { directories, busAddress } = rig.config;
  const attempt = await attemptOf(rig, own);
  const { data } = await opened(rig, own.id);
  const { data: others } = await opened(rig, victim.id);
  return {
    STATE: directories.state,
    STATE_HOME: path.resolve(directories.state, '../..'),
    BASE: rig.base,
    RUNTIME: directories.runtime,
    USER_RUNTIME: directories.userRuntime,
    API: directories.apiSocket,
    BUS: busAddress,
    ATTEMPT: attempt,
    DIRECTORY: path.join(directories.attempts, own.id, attempt),
    VICTIM_DIRECTORY: path.join(directories.attempts, victim.id, await attemptOf(rig, victim)),
    NONCE: String(data['nonce']),
    WRAPPER: String(data['pid']),
    VICTIM: String(others['pid']),
    DAEMON: String(daemon.pid),
    GROUPS_OF_CONTROL: controlGroups(Number(others['pid'])).join(' '),
    USER_ID: String(process.getuid?.()),
    TREE: rig.tree,
    AGENT: path.join(rig.base, 'agent'),
    VICTIM_GROUP: controlGroups(Number(others['pid'])).at(-1) ?? '',
    XDG_CONFIG_HOME: path.dirname(path.dirname(directories.configFile)),
  };
}

const isStopped = (pid: string): boolean => /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

/** One that has only to be reaped, or is just coming apart, has no memory left and runs nothing. */
function isAlive(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

/** Something to find in each place that may be empty otherwise. */
function plant(rig: Rig): void {
  const { token, userRuntime, runtime } = rig.config.directories;
  writeFileSync(path.join(token, 'planted'), 'token\n');
  writeFileSync(
    path.join(rig.base, 'agent', 'auth.json'),
    '{"lab":{"type":"api_key","key":"test-key"}}\n',
  );
  for (const each of [userRuntime, runtime]) {
    mkdirSync(path.join(each, 'planted'), { recursive: true });
    writeFileSync(path.join(each, 'planted', 'key'), 'key\n');
  }
}

/** The outcome of every line by its name. */
function results(events: readonly EventView[]): Record<string, string> {
  const text = events
    .filter(({ type }) => type === 'stdout_delta')
    .map(({ data }) => String(data['text']))
    .join('');
  return outcomes(text);
}

function outcomes(text: string): Record<string, string> {
  return Object.fromEntries(
    text
      .split('\n')
      .filter((line) => /: (done|failed)$/.test(line))
      .map((line) => line.split(/: (?=\w+$)/) as [string, string]),
  );
}

const all = (lines: Readonly<Record<string, string>>, outcome: string): Record<string, string> =>
  Object.fromEntries(Object.keys(lines).map((name) => [name, outcome]));

/** The table of what a nest keeps in and lets through. */
export function sandboxTable(kind: ExecutorKind, create: () => Promise<Rig>): void {
  let rig: Rig;
  let home: string;
  let daemon: DaemonProcess;
  beforeEach(async () => {
    rig = await create();
    // Not the person's own: what must not be writable is made where it is missing.
    home = path.join(rig.base, 'home');
    mkdirSync(home);
    daemon = await rig.startDaemon({ env: { HOME: home } });
  });
  afterEach(async () => {
    await rig.end();
  });

  const ofManager = kind === 'systemd' ? SYSTEMD_REACHES : {};

  /** Runs the lines beside an attempt that has to survive them. */
  async function attack(
    sandbox: 'nest' | 'off',
    lines: Readonly<Record<string, string>>,
    runner: 'command' | 'pi' = 'command',
  ) {
    plant(rig);
    const waits = 'echo up; until [ -e go ]; do sleep 0.1; done';
    const victim = await rig.submit({ argv: ['sh', '-c', waits], sandbox: 'off' });
    await up(rig, victim.id);
    const tried = `${tries({ ...lines, ...ofManager })}\n${tries(WORK)}\n`;
    writeFileSync(
      path.join(rig.tree, 'attack.sh'),
      `echo up\nuntil [ -e facts.ready ]; do sleep 0.05; done\n. ./facts.sh\n${TRY}\n${tried}`,
    );
    const asBash = script('bash sh attack.sh >attack.log 2>&1', 'say done');
    const what = runner === 'pi' ? { prompt: asBash } : { argv: ['sh', 'attack.sh'] };
    const own = await rig.submit({ ...what, sandbox });
    const begun = runner === 'pi' ? 'tool.start' : 'stdout_delta';
    await rig.waitForEvent(own.id, ({ type }) => type === begun, 'the command to be up');
    const known = await facts(rig, daemon, own, victim);
    const assignments = Object.entries(known).map(([name, value]) => `${name}=${quoted(value)}\n`);
    writeFileSync(path.join(rig.tree, 'facts.sh'), assignments.join(''));
    open('facts.ready');
    const outcome = await rig.outcome(own.id);
    open('go');
    expect((await rig.outcome(victim.id)).workUnit.status, 'of the other one').toBe('succeeded');
    return { known, ...outcome };
  }

  const open = (gate: string): void => writeFileSync(path.join(rig.tree, gate), '');

  describe.skipIf(!namespaces)(`a command in a nest${needsNamespaces}`, () => {
    it('reaches nothing of outlive, of other attempts or of the manager, and still works', async () => {
      const { known, events, workUnit } = await attack('nest', { ...REACHES, ...DEEDS });
      expect(results(events)).toEqual({
        ...all({ ...REACHES, ...DEEDS, ...ofManager }, 'failed'),
        ...all(WORK, 'done'),
      });
      expect([workUnit.status, workUnit.errorCode]).toEqual(['succeeded', null]);
      expect(events.filter(({ type }) => type.startsWith('diagnostic.'))).toEqual([]);
      // And from outside: nothing has happened to what it went for.
      expect(isStopped(known['DAEMON'] ?? '')).toBe(false);
      expect(readdirSync(rig.config.directories.decisions)).toEqual([]);
      expect(existsSync(path.join(home, '.config/systemd/user'))).toBe(false);
      await appears(path.join(rig.exitRecords(), `${known['NONCE']}.json`));
    });

    it('that is bash of the real Pi reaches as little, and works as well', async () => {
      const lines = { ...REACHES, ...DEEDS };
      const { workUnit } = await attack('nest', lines, 'pi');
      expect(workUnit.status).toBe('succeeded');
      const log = readFileSync(path.join(rig.tree, 'attack.log'), 'utf8');
      expect(outcomes(log)).toEqual({
        ...all({ ...lines, ...ofManager }, 'failed'),
        ...all(WORK, 'done'),
      });
    });

    it('would reach all of it without', async () => {
      const { events } = await attack('off', REACHES);
      const { 'reaps orphans': _orphans, 'has terminals of its own': _terminals, ...work } = WORK;
      expect(results(events)).toMatchObject({
        ...all({ ...REACHES, ...ofManager }, 'done'),
        ...all(work, 'done'),
      });
    });

    it('whose server runs on beside it is ended with the attempt, and named', async () => {
      const { workUnit, events } = await rig.runToEnd({
        argv: [
          'sh',
          '-c',
          'setsid sleep 300 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done',
        ],
        sandbox: 'nest',
      });
      expect(workUnit.status).toBe('succeeded');
      const finished = events.find(({ type }) => type === 'runner.finished');
      const leftovers = finished?.data['leftovers'] as { pid: number; name: string }[];
      expect(leftovers.map(({ name }) => name)).toEqual(['sleep']);
      expect(leftovers.map(({ pid }) => isAlive(pid))).toEqual([false]);
    });

    it('gets its grace when it is cancelled', async () => {
      const { id } = await rig.submit({
        argv: [
          'sh',
          '-c',
          'trap "sleep 2.5; echo over; exit 0" TERM; echo up; while :; do sleep 0.1; done',
        ],
        sandbox: 'nest',
      });
      await up(rig, id);
      await rig.client.cancelWorkUnit(id);
      const { workUnit, events } = await rig.outcome(id);
      expect(workUnit.status).toBe('cancelled');
      const said = events.filter(({ type }) => type === 'stdout_delta');
      expect(said.map(({ data }) => data['text']).join('')).toBe('up\nover\n');
    });

    it('dies with a wrapper that is killed', async () => {
      const { id } = await rig.submit({
        argv: ['sh', '-c', 'setsid sleep 300 & echo up; exec sleep 300'],
        sandbox: 'nest',
      });
      await up(rig, id);
      const { data } = await opened(rig, id);
      const inside = inNestOf(Number(data['pid']));
      expect(inside.length).toBeGreaterThan(2);
      process.kill(Number(data['pid']), 'SIGKILL');
      expect((await rig.outcome(id)).workUnit.errorCode).toBe('killed');
      expect(inside.filter(isAlive)).toEqual([]);
    });
  });
}

/** All that descends from the wrapper. */
function inNestOf(wrapper: number): number[] {
  const rows = execFileSync('ps', ['-eo', 'pid=,ppid='], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number) as [number, number]);
  const found = new Set([wrapper]);
  for (let size = 0; size !== found.size; ) {
    size = found.size;
    for (const [pid, parent] of rows) if (found.has(parent)) found.add(pid);
  }
  return [...found];
}
