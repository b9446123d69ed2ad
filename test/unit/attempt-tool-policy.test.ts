import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { FieldReader, LaunchFileError } from '../../src/attempt/field-reader.ts';
import { readApprovals } from '../../src/attempt/launch-approvals.ts';
import { insideOf, placeOf } from '../../src/attempt/places.ts';
import type { ToolRule } from '../../src/domain/decisions.ts';
import { decide } from '../../src/domain/tool-policy.ts';

/** A tree with a link out of it, and what lies beside it. */
function tree(): { root: string; home: string } {
  const top = mkdtempSync(path.join(tmpdir(), 'outlive-places-'));
  onTestFinished(() => rmSync(top, { recursive: true }));
  const root = path.join(top, 'tree');
  mkdirSync(path.join(root, 'src'), { recursive: true });
  mkdirSync(path.join(top, 'tree-beside'));
  writeFileSync(path.join(root, 'src/a.ts'), '');
  symlinkSync(top, path.join(root, 'up'));
  symlinkSync('src', path.join(root, 'within'));
  symlinkSync(path.join(top, 'not-yet'), path.join(root, 'dangling'));
  symlinkSync('loop', path.join(root, 'loop'));
  return { root, home: top };
}

test.each([
  ['src/a.ts', true],
  ['.', true],
  ['src/new/deep/file', true],
  ['within/new', true],
  ['@src/a.ts', true],
  ['src/../src', true],
  ['..', false],
  ['../tree-beside/x', false],
  ['up', false],
  ['up/tree/src', true],
  ['up/new', false],
  ['dangling', false],
  ['dangling/x', false],
  ['loop', false],
  ['src/a.ts/x', false],
  ['~', false],
  ['~/tree/src', true],
  ['~root/x', false],
  ['/etc/passwd', false],
  ['file:///etc/passwd', false],
  ['a\0b', false],
])('%s is inside: %s', (given, expected) => {
  const { root, home } = tree();
  expect(insideOf(root, root, home)(given)).toBe(expected);
});

test('a path is taken from where the call runs, as Pi takes it', () => {
  const { root, home } = tree();
  const inside = insideOf(root, path.join(root, 'src'), home);
  expect(inside('..')).toBe(true);
  expect(inside('../..')).toBe(false);
  expect(placeOf('a\u00a0b', '/w', '/h')).toBe('/w/a b');
  expect(placeOf('~/x', '/w', '/h')).toBe('/h/x');
});

test.each([
  ['npm test', 'inside'],
  ['cat src/a.ts > out.txt 2>/dev/null', 'inside'],
  ['git log --format=%h -n 3 HEAD~1', 'inside'],
  ['make -Isrc/include', 'outside'],
  ['cat /etc/passwd', 'outside'],
  ['cat "/etc/passwd"', 'outside'],
  ['cat \\/etc/passwd', 'outside'],
  ["cat .''./x", 'outside'],
  ['cat ../x', 'outside'],
  ['cd src; cat ../../x', 'outside'],
  ['cc -I../x a.c', 'outside'],
  ['tar -C/etc x', 'outside'],
  ['dd of=/dev/sda', 'outside'],
  ['cat ~/x', 'outside'],
  ['cat up/x', 'outside'],
  ['echo $HOME', 'outside'],
  ['cat `which sh`', 'outside'],
  ['x={../..,a}', 'outside'],
  ['python -c \'open("/etc/passwd")\'', 'outside'],
  ['curl https://example.org/x', 'outside'],
  ['echo a;cat</etc/passwd', 'outside'],
])('bash: %s is %s', (command, where) => {
  const { root, home } = tree();
  const inside: ToolRule = { effect: 'allow', tool: 'bash', path: 'inside' };
  const call = { tool: 'bash', arguments: { command }, cwd: root };
  const policy = { rules: [inside], otherwise: 'deny' } as const;
  const { effect } = decide(policy, call, insideOf(root, root, home));
  expect(effect).toBe(where === 'inside' ? 'allow' : 'deny');
});

test.each<[string, ToolRule['argument'], boolean]>([
  ['a named argument', { name: 'path', pattern: '\\.ts$' }, true],
  ['a named one as a pointer', { name: '/edits/0/newText', pattern: '^new$' }, true],
  ['one that is not there', { name: 'command', pattern: '' }, false],
  ['an inherited one', { name: 'constructor', pattern: '' }, false],
  ['all texts', { pattern: '^old$' }, true],
  ['names of arguments', { pattern: 'oldText' }, false],
])('a pattern is searched in %s', (_, argument, isFound) => {
  const given = { path: 'a.ts', edits: [{ oldText: 'old', newText: 'new' }] };
  const policy = {
    rules: [{ effect: 'deny', tool: 'edit', argument }],
    otherwise: 'allow',
  } as const;
  const call = { tool: 'edit', arguments: given, cwd: '/w' };
  expect(decide(policy, call, () => true).effect).toBe(isFound ? 'deny' : 'allow');
});

const SPEC = {
  policy: {
    rules: [
      { effect: 'deny', tool: 'bash', argument: { name: 'command', pattern: '^rm' }, reason: '' },
      { effect: 'ask', tool: '*', path: 'outside' },
    ],
    otherwise: 'allow',
  },
  expiresMs: 1,
  decisions: '/d',
  publicKey: 'k',
  grants: [
    {
      approvalId: 'p',
      toolCallId: 'c',
      tool: 'bash',
      fingerprint: 'f',
      arguments: null,
      cwd: '/w',
      decision: 'denied',
      reason: null,
      execute: false,
    },
  ],
};

test('the part about approvals is read as it is; a file without it has none', () => {
  expect(readApprovals({ ...SPEC, later: 1 }, 'f')).toEqual(SPEC);
  expect(readApprovals(undefined, 'f')).toBeNull();
  expect(readApprovals(null, 'f')).toBeNull();
});

const withRule = (rule: object) => ({ ...SPEC, policy: { rules: [rule], otherwise: 'deny' } });
const allow = { effect: 'allow', tool: 'bash' };

test.each<[string, unknown, string]>([
  ['no object', [], 'f: approvals is not an object'],
  ['no policy', { ...SPEC, policy: undefined }, 'policy is not an object'],
  ['an unknown effect', withRule({ ...allow, effect: 'maybe' }), 'effect is not one of allow'],
  ['a condition of later', withRule({ ...allow, host: 'x' }), 'rules[0]: host is unknown'],
  ['a pattern that is none', withRule({ ...allow, argument: { pattern: '(' } }), 'Invalid regular'],
  ['a condition of null', withRule({ ...allow, path: null }), 'path is not one of inside'],
  ['a relative directory', { ...SPEC, decisions: 'd' }, 'decisions is not an absolute path'],
  ['a grant that is none', { ...SPEC, grants: [1] }, 'grants[0] is not an object'],
])('refused is %s: what is not understood must not be allowed', (_, raw, message) => {
  expect(() => readApprovals(raw, 'f')).toThrow(LaunchFileError);
  expect(() => readApprovals(raw, 'f')).toThrow(message);
});

test('a field that is there may hold anything but nothing', () => {
  const read = new FieldReader({ a: null }, 'f');
  expect(read.any('a')).toBeNull();
  expect(() => read.any('b')).toThrow('f: b is not there');
});
