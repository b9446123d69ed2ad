/** The exit-record script as ExecStopPost of real units: it never spoils their Result. */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Executor } from '../../src/executor/port.ts';
import { Rig } from './executor-rig.ts';

const rig = new Rig();
let executor: Executor;

beforeAll(async () => {
  rig.exits = path.join(rig.home, 'exits');
  mkdirSync(rig.exits);
  executor = await rig.connected();
});
afterAll(() => rig.sweep());

const goodEnd = { state: 'inactive', result: 'success', exit: { how: 'exited', status: 0 } };

test('a record is written before the unit is seen as ended, and nothing else is left', async () => {
  const attempt = rig.attempt('exit 0');
  await rig.start(executor, attempt);
  await rig.ended(executor, attempt.unit);
  expect(readdirSync(rig.exits)).toEqual([`${attempt.request.nonce}.json`]);
});

test('a record that exists already is not overwritten', async () => {
  const attempt = rig.attempt('exit 0');
  const file = path.join(rig.exits, `${attempt.request.nonce}.json`);
  writeFileSync(file, 'the first');
  await rig.start(executor, attempt);
  expect(await rig.ended(executor, attempt.unit)).toMatchObject(goodEnd);
  expect(readFileSync(file, 'utf8')).toBe('the first');
});

test('an exits directory that cannot be written costs the record, not the result', async () => {
  const attempt = rig.attempt('ready; gate; exit 0');
  await rig.start(executor, attempt);
  chmodSync(rig.exits, 0o500);
  attempt.open();
  expect(await rig.ended(executor, attempt.unit)).toMatchObject(goodEnd);
  chmodSync(rig.exits, 0o700);
  expect(existsSync(path.join(rig.exits, `${attempt.request.nonce}.json`))).toBe(false);
});

test('a missing exits directory costs the record, not the result', async () => {
  const nowhere = path.join(rig.home, 'nowhere');
  const lost = await rig.connected({ exits: nowhere });
  const attempt = rig.attempt('exit 0');
  await rig.start(lost, attempt);
  expect(await rig.ended(lost, attempt.unit)).toMatchObject(goodEnd);
  expect(existsSync(nowhere)).toBe(false);
});

test('a script that cannot be run costs the record, not the result', async () => {
  const attempt = rig.attempt('ready; gate; exit 0');
  await rig.start(executor, attempt);
  rmSync(path.join(rig.dropInDirectory, 'exit-record.sh'));
  attempt.open();
  expect(await rig.ended(executor, attempt.unit)).toMatchObject(goodEnd);
  expect(existsSync(path.join(rig.exits, `${attempt.request.nonce}.json`))).toBe(false);
});
