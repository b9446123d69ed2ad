import { existsSync, linkSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type ClaimFile, WRAPPER_EXIT } from '../../src/domain/attempt-files.ts';
import { makeShellLab } from './support/lab.ts';

test('of twenty wrappers started at once exactly one runs, and the claim names it; T80 dbos-py#742', async () => {
  const lab = await makeShellLab('echo ran >> "$HOME/ran"; echo hello');
  const wrappers = Array.from({ length: 20 }, () => lab.start());
  const ends = await Promise.all(wrappers.map((wrapper) => wrapper.ended));
  const codes = ends.map((end) => end.code ?? -1).toSorted((a, b) => a - b);
  expect(codes).toEqual([0, ...Array.from({ length: 19 }, () => WRAPPER_EXIT.claimLost)]);
  const winner = wrappers[ends.findIndex((end) => end.code === 0)];
  const claim: ClaimFile = JSON.parse(await lab.read('claim'));
  expect(claim).toEqual({
    v: 1,
    by: 'wrapper',
    nonce: 'n0nce',
    invocationId: null,
    pid: winner?.pid,
  });
  expect(winner?.spool.lines[0]?.data).toMatchObject({ pid: winner?.pid, nonce: 'n0nce' });
  expect(await lab.readText('ran')).toBe('ran\n');
  expect(readdirSync(lab.directory).toSorted()).toEqual([
    'claim',
    'events.jsonl',
    'launch.json',
    'stderr.log',
    'stdout.log',
  ]);
});

test('a revoked claim: nothing runs, nothing is written, the reason is said', async () => {
  const lab = await makeShellLab('echo ran >> "$HOME/ran"');
  const revoked: ClaimFile = { v: 1, by: 'revoked', nonce: 'n0nce', runtimeInstanceId: 'daemon-7' };
  const finished = path.join(lab.root, 'revoked');
  writeFileSync(finished, JSON.stringify(revoked));
  linkSync(finished, path.join(lab.directory, 'claim'));
  const end = await lab.start().ended;
  expect(end.code).toBe(WRAPPER_EXIT.claimLost);
  expect(end.stderr).toContain('revoked by daemon daemon-7');
  expect(existsSync(lab.spoolFile)).toBe(false);
  expect(existsSync(path.join(lab.root, 'ran'))).toBe(false);
});

test('the claim carries the invocation id of the unit', async () => {
  const lab = await makeShellLab('true');
  await lab.run({ INVOCATION_ID: 'feedbeef' });
  expect(JSON.parse(await lab.read('claim'))).toMatchObject({ invocationId: 'feedbeef' });
});

test.each([
  ['another version', { version: 2 }, {}, 'has version 2'],
  ['another nonce', {}, { OUTLIVE_NONCE: 'other' }, 'belongs to another nonce'],
  ['no nonce in the environment', {}, { OUTLIVE_NONCE: '' }, 'OUTLIVE_NONCE is not set'],
  ['a relative work tree', { cwd: 'work' }, {}, 'cwd is not an absolute path'],
])('launch.json with %s is refused before the claim', async (_, changes, environment, reason) => {
  const lab = await makeShellLab('true', changes);
  const end = await lab.start(environment).ended;
  expect(end.code).toBe(WRAPPER_EXIT.badLaunchFile);
  expect(end.stderr).toContain(reason);
  expect(readdirSync(lab.directory)).toEqual(['launch.json']);
});

test('a spool that is there already stops the start', async () => {
  const lab = await makeShellLab('echo ran >> "$HOME/ran"');
  writeFileSync(lab.spoolFile, '');
  const end = await lab.start().ended;
  expect(end.code).toBe(WRAPPER_EXIT.noSpool);
  expect(end.stderr).toContain('EEXIST');
  expect(existsSync(path.join(lab.root, 'ran'))).toBe(false);
});
