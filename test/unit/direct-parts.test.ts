/** The pure parts of the direct executor: whose a process is, what a look at it says, what is started. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ExitRecord } from '../../src/domain/evidence.ts';
import {
  directFacts,
  groupOf,
  type Look,
  markIn,
  stateOf,
} from '../../src/executor/direct-facts.ts';
import { readExitRecord } from '../../src/executor/direct-files.ts';
import { keeperCommand } from '../../src/executor/direct-start.ts';
import { isEmpty, markOf, treeOf } from '../../src/executor/direct-tree.ts';
import type { StartRequest } from '../../src/executor/port.ts';
import { type Bearer, parseStat } from '../../src/executor/process-table.ts';

const NONCE = '0123456789abcdef0123456789abcdef';
const MARK = markOf(NONCE);

function bearer(pid: number, ppid: number, session: number, ...variables: string[]): Bearer {
  const has = (variable: string): boolean => variables.includes(variable);
  return { pid, ppid, session, startTicks: 1, has };
}

const nonce = `OUTLIVE_NONCE=${NONCE}`;
const mark = `OUTLIVE_MARK=${MARK}`;
const keeper = bearer(100, 1, 100, nonce);
const wrapper = bearer(102, 101, 100, nonce, mark);
const tool = bearer(110, 102, 110, mark);
const shell = bearer(1, 0, 1);
const daemon = bearer(50, 1, 1);

const pids = (found: readonly Bearer[]): number[] => found.map(({ pid }) => pid);

describe('whose a process is', () => {
  it('core carries the nonce, the rest the mark; nobody else is anybody', () => {
    const tree = treeOf([shell, daemon, keeper, wrapper, tool], MARK, NONCE);
    expect([pids(tree.core), pids(tree.marked), pids(tree.rest)]).toEqual([
      [100, 102],
      [102, 110],
      [110],
    ]);
  });

  it('a cleared environment is found by the session or the parent of a marked one', () => {
    const cleared = [bearer(120, 1, 110), bearer(121, 110, 121)];
    expect(pids(treeOf([keeper, wrapper, tool, ...cleared], MARK, NONCE).rest)).toEqual([
      110, 120, 121,
    ]);
  });

  it('what the keeper runs for itself is never of the rest: it writes the exit record', () => {
    const recorder = bearer(130, 100, 100, nonce);
    const plain = bearer(131, 130, 100);
    expect(pids(treeOf([keeper, wrapper, recorder, plain, tool], MARK, NONCE).rest)).toEqual([110]);
  });

  it('a start on its way, still in the session of its daemon, makes that session nobody’s', () => {
    const onItsWay = bearer(60, 50, 1, nonce);
    const tree = treeOf([shell, daemon, onItsWay], MARK, NONCE);
    expect([pids(tree.core), pids(tree.marked)]).toEqual([[60], []]);
    expect(isEmpty(tree)).toBe(false);
  });

  it('the mark says nothing of the nonce', () => {
    expect(MARK).toMatch(/^[0-9a-f]{32}$/);
    expect(MARK).not.toBe(NONCE);
    expect(markOf('another')).not.toBe(MARK);
    expect(markIn(groupOf(NONCE))).toBe(MARK);
    expect(markIn('/user.slice/x.service')).toBeNull();
  });
});

describe('a stat of proc(5)', () => {
  const stat = (name: string, state: string): string =>
    `77 (${name}) ${state} 5 77 66 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0`;

  it.each(['sh', 'a b', 'x) R (y'])('of a process named %j', (name) => {
    expect(parseStat(stat(name, 'S'))).toEqual({ pid: 77, ppid: 5, session: 66, startTicks: 4711 });
  });

  it.each(['Z', 'X'])('in state %s is of none that lives', (state) => {
    expect(parseStat(stat('sh', state))).toBeNull();
  });

  it('of nothing is nothing', () => {
    expect(parseStat('')).toBeNull();
  });
});

const record: ExitRecord = {
  v: 1,
  nonce: NONCE,
  invocationId: MARK,
  serviceResult: 'exit-code',
  exitCode: 'exited',
  exitStatus: '3',
  bootId: 'b',
  uptimeSeconds: 12.5,
  ts: null,
  manager: null,
  managerState: null,
};

const look = (changes: Partial<Look>): Look => ({
  entry: { v: 1, unit: 'u', nonce: NONCE, attemptDirectory: '/a', bootId: 'b' },
  keeper: {
    v: 1,
    nonce: NONCE,
    pid: 100,
    startTicks: 1,
    bootId: 'b',
    startedCs: 1000,
    deadlineCs: 9000,
  },
  keeperLives: false,
  tree: treeOf([], MARK, NONCE),
  record: null,
  ...changes,
});

describe('the state of an attempt', () => {
  it.each<[string, Partial<Look>, string | null]>([
    ['its keeper lives', { keeperLives: true, tree: null }, 'active'],
    [
      'its keeper has recorded the end and clears up',
      { keeperLives: true, tree: null, record },
      'deactivating',
    ],
    [
      'its keeper was killed, its wrapper lives',
      { tree: treeOf([wrapper, tool], MARK, NONCE) },
      'active',
    ],
    ['only what it left behind lives', { tree: treeOf([tool], MARK, NONCE) }, 'deactivating'],
    [
      'the end is recorded and something lives',
      { tree: treeOf([tool], MARK, NONCE), record },
      'deactivating',
    ],
    [
      'its start is on its way',
      { keeper: null, tree: treeOf([keeper], MARK, NONCE) },
      'activating',
    ],
    ['all is over, and recorded', { record }, 'failed'],
    ['all is over, well', { record: { ...record, serviceResult: 'success' } }, 'inactive'],
    ['the machine was started anew, and it is recorded', { tree: null, record }, 'failed'],
    ['nothing is there', {}, null],
    ['the machine was started anew', { tree: null }, null],
  ])('when %s', (_when, changes, state) => {
    expect(stateOf(look(changes))).toBe(state);
  });

  it('its end comes from the record, its time from the keeper’s start on the same boot', () => {
    const exit = { how: 'exited', status: 3, signal: null, elapsedMs: 2500 };
    expect(directFacts(look({ record }))).toMatchObject({ result: 'exit-code', exit });
    const elsewhere = directFacts(look({ record: { ...record, bootId: 'other' } }));
    expect(elsewhere?.exit.elapsedMs).toBeNull();
  });

  it('says nothing of an end while something lives', () => {
    const facts = directFacts(look({ keeperLives: true, tree: null, record }));
    expect(facts?.exit).toMatchObject({ how: 'unknown', status: null });
  });
});

describe('the keeper’s command', () => {
  const request: StartRequest = {
    unit: 'outlive-main-x-1.service',
    nonce: NONCE,
    attemptId: 'id',
    description: '',
    argv: ['/node', '/w.js', '/a'],
    attemptDirectory: '/a',
    environment: { PATH: '/bin', OUTLIVE_NONCE: 'of somebody else' },
    credentials: [],
    hardTimeoutMs: 0,
    cancelGraceMs: 15_000,
  };
  const files = { keeper: '/k.sh', exitRecord: '/r.sh', exits: '/e' };

  it('carries both deadlines in milliseconds, and a timeout of 0 is not none', () => {
    const { argv, environment } = keeperCommand(request, files, null);
    expect(argv).toEqual([
      '/bin/sh',
      '/k.sh',
      '/a',
      '/e',
      '/r.sh',
      '1',
      '20000',
      '-',
      MARK,
      '/node',
      '/w.js',
      '/a',
    ]);
    // The mark is set by the keeper, in a session of its own; no variable replaces the identity.
    expect(environment).toEqual({ PATH: '/bin', OUTLIVE_NONCE: NONCE });
    expect(keeperCommand(request, files, '/held').environment).toMatchObject({
      CREDENTIALS_DIRECTORY: '/held',
    });
  });
});

describe('an exit record', () => {
  it('that is a directory is none', async () => {
    const exits = mkdtempSync(path.join(os.tmpdir(), 'exits-'));
    mkdirSync(path.join(exits, `${NONCE}.json`));
    expect(await readExitRecord(exits, NONCE)).toBeNull();
    rmSync(exits, { recursive: true });
  });
});
