import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Call,
  fingerprintText,
  OPEN_POLICY,
  type ToolPolicy,
  type ToolRule,
} from '../../src/domain/decisions.ts';
import { decide, mayBeHeld } from '../../src/domain/tool-policy.ts';

const TOOLS = ['bash', 'edit', 'write', 'read', 'deploy'] as const;
const effect = fc.constantFrom('allow', 'ask', 'deny' as const);
const rule: fc.Arbitrary<ToolRule> = fc.record(
  {
    effect,
    tool: fc.constantFrom('*', ...TOOLS),
    argument: fc.record(
      { name: fc.constantFrom('command', 'path'), pattern: fc.constantFrom('a', '^b', 'c$') },
      { requiredKeys: ['pattern'] },
    ),
    path: fc.constantFrom('inside', 'outside' as const),
  },
  { requiredKeys: ['effect', 'tool'] },
);
const policy: fc.Arbitrary<ToolPolicy> = fc.record({
  rules: fc.array(rule, { maxLength: 6 }),
  otherwise: effect,
});
const word = fc.constantFrom('a', 'b', 'c', 'abc', '../a', '/b', '$c', 'x/y');
const call: fc.Arbitrary<Call> = fc.record({
  tool: fc.constantFrom(...TOOLS),
  arguments: fc.record({ command: word, path: word }, { requiredKeys: [] }),
  cwd: fc.constant('/tree'),
});
const isInside = (path: string): boolean => !path.startsWith('/') && !path.startsWith('..');
const judge = (rules: readonly ToolRule[], one: Call): string =>
  decide({ rules, otherwise: 'deny' }, one, isInside).effect;

describe('a policy', () => {
  it('is decided by the first rule that holds, whatever follows', () => {
    fc.assert(
      fc.property(policy, policy, call, (first, second, one) => {
        const alone = decide(first, one, isInside);
        const both = { rules: [...first.rules, ...second.rules], otherwise: first.otherwise };
        if (alone.rule !== null) expect(decide(both, one, isInside)).toEqual(alone);
        else expect(alone.effect).toBe(first.otherwise);
      }),
    );
  });

  it('does not change by rules about other tools', () => {
    fc.assert(
      fc.property(policy, call, (given, one) => {
        const rules = given.rules.filter(({ tool }) => tool === '*' || tool === one.tool);
        expect(decide({ ...given, rules }, one, isInside)).toEqual(decide(given, one, isInside));
      }),
    );
  });

  it('that lets a tool go whatever it is given does so for every call', () => {
    fc.assert(
      fc.property(policy, call, (given, one) => {
        if (mayBeHeld(given, one.tool)) return;
        expect(decide(given, one, isInside).effect).toBe('allow');
      }),
    );
  });

  it('holds either inside or outside, never both and never neither', () => {
    fc.assert(
      fc.property(call, (one) => {
        const on = (path: 'inside' | 'outside'): string =>
          judge([{ effect: 'allow', tool: '*', path }], one);
        expect([on('inside'), on('outside')].toSorted()).toEqual(['allow', 'deny']);
      }),
    );
  });

  it('with a condition more holds for fewer calls, never for others', () => {
    fc.assert(
      fc.property(rule, call, (one, given) => {
        const { argument, path, ...bare } = one;
        if (judge([one], given) !== judge([], given)) {
          expect(judge([bare], given)).toBe(one.effect);
        }
        expect(argument ?? path ?? null).toBeDefined();
      }),
    );
  });

  it('that is open allows everything', () => {
    fc.assert(
      fc.property(call, (one) => {
        expect(decide(OPEN_POLICY, one, isInside)).toEqual({ effect: 'allow', rule: null });
      }),
    );
  });
});

describe('what a call is known by', () => {
  const json = fc.jsonValue({ maxDepth: 3 });

  it('is the same after a way over JSON, in any order of keys', () => {
    fc.assert(
      fc.property(json, fc.string(), (given, cwd) => {
        const one = { tool: 'bash', arguments: given, cwd };
        const { arguments: again, ...rest } = JSON.parse(JSON.stringify(one)) as Call;
        expect(fingerprintText({ arguments: again, ...rest })).toBe(fingerprintText(one));
      }),
    );
  });

  it('differs where tool, arguments or directory do', () => {
    fc.assert(
      fc.property(json, json, fc.string(), fc.string(), (a, b, x, y) => {
        const text = (tool: string, given: unknown, cwd: string): string =>
          fingerprintText({ tool, arguments: given, cwd });
        const isSame = JSON.stringify(a) === JSON.stringify(b);
        if (text('t', a, x) === text('t', b, x)) expect(isSame || deepEqual(a, b)).toBe(true);
        expect(text('t', a, x) === text('t', a, y)).toBe(x === y);
        expect(text(x, a, '/') === text(y, a, '/')).toBe(x === y);
      }),
    );
  });
});

function deepEqual(one: unknown, other: unknown): boolean {
  try {
    expect(JSON.parse(JSON.stringify(one))).toEqual(JSON.parse(JSON.stringify(other)));
    return true;
  } catch {
    return false;
  }
}
