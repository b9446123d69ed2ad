import os from 'node:os';
import { describe, expect, test } from 'vitest';
import { startTicksOf } from '../../src/executor/process-table.ts';
import { hintOf } from '../../src/systemd/signals.ts';
import { signalName, unitFacts } from '../../src/systemd/unit-facts.ts';
import { unitOfPath, unitPath } from '../../src/systemd/unit-path.ts';

const UNIT = 'outlive-main-a-1.service';
const never = { appliesTo: () => false };

const facts = (unit: Record<string, unknown>, service: Record<string, unknown> = {}) =>
  unitFacts(UNIT, { unit, service }, never);

describe('facts of a unit', () => {
  test('of a running one', () => {
    expect(
      unitFacts(
        UNIT,
        {
          unit: {
            LoadState: 'loaded',
            ActiveState: 'active',
            FreezerState: 'running',
            InvocationID: Buffer.from('81e06dfa', 'hex'),
            DropInPaths: ['/x'],
          },
          service: {
            Environment: ['A=1', 'OUTLIVE_NONCE=abc'],
            ControlGroup: '/user.slice/a.service',
            MainPID: 102,
            Result: 'success',
            ExecMainCode: 0,
            ExecMainStatus: 0,
            ExecMainStartTimestampMonotonic: 808_213_158n,
            ExecMainExitTimestampMonotonic: 0n,
            ExecStopPost: [['/bin/sh', ['/bin/sh', '/x.sh']]],
          },
        },
        { appliesTo: (paths, commands) => Array.isArray(paths) && Array.isArray(commands) },
      ),
    ).toEqual({
      unit: UNIT,
      nonce: 'abc',
      state: 'active',
      jobPending: false,
      everRan: false,
      frozen: false,
      invocationId: '81e06dfa',
      controlGroup: '/user.slice/a.service',
      mainPid: 102,
      result: 'success',
      exit: { how: 'unknown', status: null, signal: null, elapsedMs: null },
      leavesExitRecord: true,
    });
  });

  test('of a dead one have no group, no pid and null for what is empty', () => {
    const dead = facts(
      { LoadState: 'loaded', ActiveState: 'inactive', InvocationID: Buffer.alloc(0) },
      { ControlGroup: '', MainPID: 0, Environment: [] },
    );
    expect(dead).toMatchObject({
      controlGroup: null,
      mainPid: null,
      invocationId: null,
      nonce: null,
    });
  });

  test('are null for a unit that is not loaded, but not for one whose file is gone while it runs', () => {
    expect(facts({ LoadState: 'not-found', ActiveState: 'inactive' })).toBeNull();
    expect(facts({ LoadState: 'not-found', ActiveState: 'active' })).toMatchObject({
      state: 'active',
    });
    expect(facts({ LoadState: 'bad-setting', ActiveState: 'inactive' })).not.toBeNull();
  });

  test.each([
    [1, 3, { how: 'exited', status: 3, signal: null }],
    [1, 0, { how: 'exited', status: 0, signal: null }],
    [2, 9, { how: 'killed', status: null, signal: 'KILL' }],
    [3, 11, { how: 'dumped', status: null, signal: 'SEGV' }],
    [0, 0, { how: 'unknown', status: null, signal: null }],
    [6, 0, { how: 'unknown', status: null, signal: null }],
  ])('ExecMainCode %i with status %i', (code, status, exit) => {
    const read = facts(
      { LoadState: 'loaded', ActiveState: 'failed' },
      { ExecMainCode: code, ExecMainStatus: status },
    );
    expect(read?.exit).toEqual({ ...exit, elapsedMs: null });
  });

  test('count elapsed time in whole monotonic milliseconds', () => {
    const read = facts(
      { LoadState: 'loaded', ActiveState: 'failed' },
      {
        ExecMainCode: 1,
        ExecMainStartTimestampMonotonic: 5_000_000n,
        ExecMainExitTimestampMonotonic: 8_000_999n,
      },
    );
    expect(read?.exit.elapsedMs).toBe(3_000);
  });

  test.each([
    ['frozen', true],
    ['freezing', true],
    ['frozen-by-parent', true],
    ['running', false],
    ['thawing', false],
  ])('FreezerState %s', (state, frozen) => {
    expect(facts({ ActiveState: 'active', FreezerState: state })?.frozen).toBe(frozen);
  });

  test('conclude nothing from a state of a newer systemd', () => {
    expect(facts({ ActiveState: 'refreshing' })?.state).toBe('reloading');
    expect(facts({ ActiveState: 'maintenance' })?.state).toBe('deactivating');
  });

  test('take the last nonce, as the process does', () => {
    const Environment = ['OUTLIVE_NONCE=first', 'OUTLIVE_NONCE=last'];
    expect(facts({ ActiveState: 'active' }, { Environment })?.nonce).toBe('last');
  });
});

describe('the name of a signal', () => {
  test('is the usual one, as systemd writes it', () => {
    expect([1, 6, 9, 15, 17, 29, 31].map(signalName)).toEqual([
      'HUP',
      'ABRT',
      'KILL',
      'TERM',
      'CHLD',
      'IO',
      'SYS',
    ]);
    expect([34, 37, 64].map(signalName)).toEqual(['RTMIN', 'RTMIN+3', 'RTMIN+30']);
    expect(signalName(99)).toBe('99');
  });

  test('leads back to its number', () => {
    for (const number of Object.values(os.constants.signals)) {
      expect(Reflect.get(os.constants.signals, `SIG${signalName(number)}`)).toBe(number);
    }
  });
});

describe('an object path', () => {
  test('escapes what systemd escapes', () => {
    expect(unitPath('outlive-main-a-1.service')).toBe(
      '/org/freedesktop/systemd1/unit/outlive_2dmain_2da_2d1_2eservice',
    );
    expect(unitPath('1a.service')).toBe('/org/freedesktop/systemd1/unit/_31a_2eservice');
  });

  test.each(['outlive-main-a-1.service', 'a_b@ü:x\\x2d.service', '9.mount', '-.slice'])(
    'leads back to %s',
    (name) => {
      expect(unitOfPath(unitPath(name))).toBe(name);
    },
  );

  test('of anything else is no unit', () => {
    expect(unitOfPath('/org/freedesktop/systemd1/job/47')).toBeNull();
    expect(unitOfPath('/org/freedesktop/systemd1')).toBeNull();
  });
});

describe('a signal', () => {
  const manager = (member: string, ...body: unknown[]) =>
    hintOf({
      path: '/org/freedesktop/systemd1',
      interface: 'org.freedesktop.systemd1.Manager',
      member,
      body,
    });
  const JOB = '/org/freedesktop/systemd1/job/4';

  test('of an ended job names job and unit', () => {
    expect(manager('JobRemoved', 4, JOB, UNIT, 'done')).toEqual({
      kind: 'job',
      result: 'done',
      job: JOB,
      unit: UNIT,
    });
  });

  test('of a new or removed unit names it', () => {
    expect(manager('UnitNew', UNIT, unitPath(UNIT))).toEqual({ kind: 'unit', unit: UNIT });
    expect(manager('UnitRemoved', UNIT, unitPath(UNIT))).toEqual({ kind: 'unit', unit: UNIT });
  });

  test('of a finished reload means everything, of a begun one nothing', () => {
    expect(manager('Reloading', false)).toEqual({ kind: 'everything' });
    expect(manager('Reloading', true)).toBeNull();
  });

  test('of changed properties names the unit of its path', () => {
    const changed = (path: string) =>
      hintOf({
        path,
        interface: 'org.freedesktop.DBus.Properties',
        member: 'PropertiesChanged',
        body: [],
      });
    expect(changed(unitPath(UNIT))).toEqual({ kind: 'unit', unit: UNIT });
    expect(changed(JOB)).toBeNull();
  });

  test('with values of the wrong type, or another one, says nothing', () => {
    expect(manager('JobRemoved', 'x')).toBeNull();
    expect(manager('UnitNew', 7)).toBeNull();
    expect(manager('StartupFinished', 1n)).toBeNull();
  });
});

describe('the start time in /proc/PID/stat', () => {
  const fields = Array.from({ length: 30 }, (_, index) => (index === 19 ? 64_438 : index)).join(
    ' ',
  );
  test('is field 22, whatever the name holds', () => {
    expect(startTicksOf(`77 (systemd) ${fields}`)).toBe(64_438);
    expect(startTicksOf(`77 (a) b (c d)) ${fields}`)).toBe(64_438);
  });

  test('is null in a text that is none', () => {
    expect(startTicksOf('')).toBeNull();
    expect(startTicksOf('77 (systemd) S 1')).toBeNull();
  });
});
