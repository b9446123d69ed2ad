/** Which sandbox an attempt gets. */
import { expect, test } from 'vitest';
import {
  chooseSandbox,
  SANDBOX_MODES,
  SANDBOX_SETTINGS,
  type SandboxAbility,
} from '../../src/domain/sandbox.ts';

const ALL: SandboxAbility = { unit: true, nest: true, why: null };
const UNIT: SandboxAbility = { unit: true, nest: false, why: 'no namespaces' };
const PLAIN: SandboxAbility = { unit: false, nest: true, why: null };
const NONE: SandboxAbility = { unit: false, nest: false, why: 'nothing works' };

test.each([
  ['as much as can be had', ALL, 'nest', null],
  ['less, with the reason', UNIT, 'unit', 'no namespaces'],
  ['a nest without a unit', PLAIN, 'nest', null],
  ['nothing, with the reason', NONE, 'off', 'nothing works'],
] as const)('auto is %s for Pi', (_what, ability, mode, weaker) => {
  expect(chooseSandbox(undefined, 'auto', 'pi', ability)).toEqual({
    mode,
    demanded: false,
    weaker,
  });
});

test('auto is nothing for a command, and that is no want', () => {
  for (const ability of [ALL, NONE]) {
    expect(chooseSandbox(undefined, 'auto', 'command', ability)).toEqual({
      mode: 'off',
      demanded: false,
      weaker: null,
    });
  }
});

test('what is asked for by name is had or refused, whoever asks', () => {
  const can = { off: [ALL, UNIT, PLAIN, NONE], unit: [ALL, UNIT], nest: [ALL, PLAIN] };
  for (const mode of SANDBOX_MODES) {
    for (const ability of [ALL, UNIT, PLAIN, NONE]) {
      for (const runner of ['pi', 'command'] as const) {
        const had = can[mode].includes(ability);
        const why: unknown = expect.stringContaining(ability.why ?? 'no such sandbox');
        const expected = had ? { mode, demanded: true, weaker: null } : { mode, why };
        expect(chooseSandbox(mode, 'auto', runner, ability)).toEqual(expected);
        expect(chooseSandbox(undefined, mode, runner, ability)).toEqual(expected);
      }
    }
  }
});

test('the work unit’s own word comes before the setting', () => {
  for (const setting of SANDBOX_SETTINGS) {
    expect(chooseSandbox('off', setting, 'pi', NONE)).toMatchObject({ mode: 'off', weaker: null });
  }
});
