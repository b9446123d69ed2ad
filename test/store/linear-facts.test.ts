/** Facts about Linear: under a name, in one workspace, there after a restart. */
import { afterEach, expect, it } from 'vitest';
import { openStore } from '../../src/store/store.ts';
import { AT, cleanUp, open, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

it('a fact is what was put last, also for the next process', () => {
  const directory = temporaryDirectory();
  const { linearFacts } = open(directory);
  expect(linearFacts.get('cursor')).toBe(null);
  linearFacts.put('cursor', { since: 'a' }, AT);
  linearFacts.put('cursor', { since: 'b' }, '2026-01-02T03:04:06.000Z');
  linearFacts.put('app', 'x', AT);
  const next = open(directory).linearFacts;
  expect(next.list()).toEqual([
    { name: 'app', value: 'x', updatedAt: AT },
    { name: 'cursor', value: { since: 'b' }, updatedAt: '2026-01-02T03:04:06.000Z' },
  ]);
});

it('a removed fact is none', () => {
  const { linearFacts } = open();
  linearFacts.put('app', null, AT);
  expect(linearFacts.get('app')?.value).toBe(null);
  expect([linearFacts.remove('app'), linearFacts.remove('app')]).toEqual([true, false]);
  expect(linearFacts.get('app')).toBe(null);
});

it('another workspace has its own', () => {
  const directory = temporaryDirectory();
  open(directory).linearFacts.put('app', 'ours', AT);
  const other = openStore(directory, 'other', AT);
  const found = other.linearFacts.get('app');
  other.close();
  expect(found).toBe(null);
});
