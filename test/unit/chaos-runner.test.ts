/** How the chaos suite deals its rounds, reads what it wrote, and adds up. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { FAULT_POINTS } from '../../src/supervisor/faults.ts';
import { ELSEWHERE, POINTS } from '../chaos/faults/points.ts';
import { FAULTS } from '../chaos/faults/table.ts';
import { parseJournal, underWay } from '../chaos/journal.ts';
import { Ledger } from '../chaos/ledger.ts';
import { parseOptions, repeatCommand } from '../chaos/options.ts';
import { dealRounds, type Family, meets, type RoundPlan } from '../chaos/plan.ts';
import { Random } from '../chaos/random.ts';
import { addRound, hasFailed, newTally, summary } from '../chaos/tally.ts';
import { ROOT } from '../support/rig.ts';

function deal(seed: string, count: number): RoundPlan[] {
  const rounds = dealRounds(seed, FAULTS);
  return Array.from({ length: count }, () => rounds.next().value);
}

describe('dealing', () => {
  test('the same seed deals the same rounds, another one others', () => {
    expect(deal('7', 30)).toEqual(deal('7', 30));
    expect(deal('8', 30)).not.toEqual(deal('7', 30));
  });

  test('every fault comes up before a full run ends, each point with it', () => {
    const dealt = deal('1', FAULTS.length).flatMap(({ faults }) => faults.map(({ name }) => name));
    expect(FAULTS.map(({ name }) => name).filter((name) => !dealt.includes(name))).toEqual([]);
    for (const point of POINTS) expect(dealt).toContain(`point:${point}`);
  });

  test('a point that is not dealt is killed at by the test that is named for it', () => {
    for (const point of FAULT_POINTS) {
      const file = ELSEWHERE[point];
      const says = file ? readFileSync(path.join(ROOT, file), 'utf8') : `point:${point}`;
      expect(says).toContain(point);
      expect(POINTS.includes(point)).toBe(file === undefined);
    }
  });

  test('in each round only families that may meet do, and what a fault needs is there', () => {
    const familyOf = new Map(FAULTS.map(({ name, family }) => [name, family]));
    const needOf = new Map(FAULTS.map(({ name, needs }) => [name, needs]));
    for (const { faults, work } of deal('3', 200)) {
      const needs = faults.flatMap(({ name }) => needOf.get(name) ?? []);
      expect(work.slice(0, needs.length).map(({ manner }) => manner)).toEqual(needs);
      const families = faults.map(({ name }) => familyOf.get(name) as Family);
      for (const [index, family] of families.entries()) {
        expect(meets(family, families.slice(0, index))).toBe(true);
      }
    }
  });

  test.each<[Family, Family[], boolean]>([
    ['daemon', ['point'], true],
    ['attempt', ['attempt'], true],
    ['daemon', ['daemon'], false],
    ['disk', ['outside'], false],
    ['alone', ['daemon'], false],
    ['daemon', ['alone'], false],
  ])('%s beside %j: %s', (family, others, may) => {
    expect(meets(family, others)).toBe(may);
  });
});

test('randomness is even and stays within its bounds', () => {
  const random = new Random('x');
  const counts = [0, 0, 0, 0];
  for (let draw = 0; draw < 4_000; draw++)
    counts[random.whole(0, 3)] = (counts[random.whole(0, 3)] ?? 0) + 1;
  for (const count of counts) expect(count).toBeGreaterThan(800);
  expect(random.shuffle([1, 2, 3, 4]).sort((a, b) => a - b)).toEqual([1, 2, 3, 4]);
});

test('a journal is read without the half line a power cut left', () => {
  const lines = parseJournal('begin w1 u1 10\nbegin w2 u2 11\nend w1 u1 10\nbeg');
  expect(lines).toHaveLength(3);
  expect(underWay(lines).map(({ key }) => key)).toEqual(['w2']);
});

test('a ledger goes on where another process left it', () => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'ledger-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const file = path.join(directory, 'ledger.jsonl');
  new Ledger(file).write({ what: 'accepted', key: 'w1', id: 'one' });
  writeFileSync(file, '{"what":"subm', { flag: 'a' });
  const again = new Ledger(file);
  expect(again.idOf('w1')).toBe('one');
  expect(again.of('submit')).toEqual([]);
});

describe('options', () => {
  const parse = (...argv: string[]) => parseOptions(argv, () => '42');
  test('200 rounds of a new seed are the default', () => {
    expect(parse()).toMatchObject({ rounds: 200, seed: '42', only: null, minutes: null });
  });
  test('a round that failed is repeated by the command that is printed', () => {
    const command = repeatCommand(parse('--seed', '9', '--fault', 'bus-kill'), 17);
    expect(command).toBe('npm run chaos -- --seed 9 --round 17 --fault bus-kill');
    const again = parse(...command.split(' ').slice(4));
    expect(again).toMatchObject({ seed: '9', only: 17, faults: ['bus-kill'] });
  });
  test.each([
    ['--rounds', '0'],
    ['--round', 'x'],
    ['--minutes', '1.5'],
  ])('%s %s is refused', (...argv) => {
    expect(() => parse(...argv)).toThrow('takes a whole number');
  });
});

describe('the sum', () => {
  const names = { faults: ['point:a', 'point:b', 'other'], points: ['a', 'b'] };
  const good = { violations: [], struck: ['point:a'], missed: [], points: ['a'] };

  test('a point that was never reached fails a full run, and only a full run', () => {
    const tally = newTally();
    addRound(tally, good);
    expect(summary(tally, names, true).slice(-2)).toEqual([
      'points never reached, which is a failure: b',
      '1 passed, 1 failed',
    ]);
    expect(hasFailed(summary(tally, names, true))).toBe(true);
    expect(summary(tally, names, false).at(-1)).toBe('1 passed, 0 failed');
    expect(hasFailed(summary(tally, names, false))).toBe(false);
  });

  test('a round with a violation has failed', () => {
    const tally = newTally();
    addRound(tally, good);
    addRound(tally, { ...good, violations: ['one'], points: ['b'] });
    expect(summary(tally, names, true).at(-1)).toBe('1 passed, 1 failed');
  });
});
