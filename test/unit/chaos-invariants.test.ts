/** Each invariant of the chaos suite, with a history that breaks it: one that cannot fail proves nothing. */
import { describe, expect, test } from 'vitest';
import { LOST } from '../chaos/faults/fault.ts';
import type { EventRow, History } from '../chaos/history.ts';
import { INVARIANTS, violations } from '../chaos/invariants/table.ts';
import type { Entry, Stamped } from '../chaos/ledger.ts';
import type { Manner, Work } from '../chaos/plan.ts';

const ID = 'id-w1';
const ATTEMPT = 'attempt-1';
const UNIT = 'outlive-c1-w1-1.service';
const TS = '2026-01-01T00:00:00.000Z';

const work = (manner: Manner = 'plain'): Work => ({
  key: 'w1',
  manner,
  bodyMs: 100,
  lease: 'red',
  priority: 0,
  afterMs: 0,
  cancelAfterMs: null,
  retry: false,
  cancelGraceMs: 200,
});

const ledger = (...entries: readonly Entry[]): Stamped[] =>
  entries.map((entry, index) => ({ ...entry, ms: index }));

type Said = readonly [type: string, data?: Record<string, unknown>, actor?: string];

const log = (...said: readonly Said[]): EventRow[] =>
  said.map(([type, data = {}, actor = 'system'], index) => ({
    position: index + 1,
    work_unit_id: ID,
    attempt_id: ATTEMPT,
    seq: index + 1,
    ts: TS,
    type,
    actor,
    data_json: JSON.stringify(data),
  }));

const SLOT = { resourceType: 'runner', resourceKey: 'command' };
const LEASE = { resourceType: 'task', resourceKey: 'red' };
const ACCEPTED: readonly Entry[] = [
  { what: 'submit', key: 'w1' },
  { what: 'accepted', key: 'w1', id: ID },
];
const EVENTS: readonly Said[] = [
  ['work_unit.created'],
  ['work_unit.queued', { reason: 'submitted' }],
  ['work_unit.claimed'],
  ['semaphore.acquired', SLOT],
  ['lease.acquired', LEASE],
  ['started', { pid: 7 }, 'runner'],
  ['attempt.ended'],
  ['semaphore.released', SLOT],
  ['lease.released', LEASE],
  ['work_unit.succeeded'],
];
const ROW = {
  id: ID,
  handle: 'w1',
  status: 'succeeded',
  error_code: null,
  last_seq: EVENTS.length,
  active_attempt_id: null,
};
const RUN = {
  id: ATTEMPT,
  work_unit_id: ID,
  attempt_number: 1,
  unit: UNIT,
  status: 'succeeded',
  error_code: null,
  intent_json: null,
  last_word_json: '{"verdict":"ok"}',
};
const BEGIN = { word: 'begin', key: 'w1', unit: UNIT, pid: 7 } as const;
const END = { word: 'end', key: 'w1', unit: UNIT, pid: 7 } as const;
const PROCESS = { pid: 7, cgroup: `0::/x/outlive-attempts-c1.slice/${UNIT}`, command: 'sh' };

const LINE = { attemptId: ATTEMPT, result: 'exit', rc: 0, reattached: false } as const;
const SAYS: Readonly<Record<string, object>> = {
  succeeded: {},
  failed: { rc: 1 },
  cancelled: { result: 'stopped', rc: 130 },
  lost: { result: 'lost', rc: null },
};

/** The ledger that these attempts should have. */
const linesOf = (attempts: History['attempts']): History['lines'] =>
  attempts
    .filter(({ status }) => status in SAYS)
    .map(({ id, status }) => ({ ...LINE, attemptId: id, ...SAYS[status] }));

/** One piece of work that went well; `changes` break it. */
const history = (changes: Partial<History> = {}): History => ({
  work: [work()],
  ledger: ledger(...ACCEPTED),
  journal: [BEGIN, END],
  workUnits: [ROW],
  attempts: [RUN],
  lines: linesOf(changes.attempts ?? [RUN]),
  events: log(...EVENTS),
  spools: { [ATTEMPT]: [{ n: 1, ts: TS, type: 'started', data: { pid: 7 } }] },
  loaded: [],
  processes: [],
  limits: { 'runner command': 1 },
  restless: [],
  lastDaemon: '0',
  ...changes,
});

const ended = (status: string, code: string | null): Partial<History> => ({
  workUnits: [{ ...ROW, status, error_code: code }],
  attempts: [{ ...RUN, status, error_code: code, last_word_json: null }],
  events: log(...EVENTS.slice(0, -1), [`work_unit.${status}`]),
});

const struck = (allows: readonly string[], name = 'some-fault'): Entry => ({
  what: 'fault',
  name,
  keys: ['w1'],
  allows,
});

const second = { ...RUN, id: 'attempt-2', attempt_number: 2, unit: 'outlive-c1-w1-2.service' };

interface Case {
  readonly what: string;
  readonly breaks: Partial<History>;
  readonly says: RegExp;
}

const CASES: Readonly<Record<string, readonly Case[]>> = {
  'nothing is lost': [
    { what: 'an accepted one is gone', breaks: { workUnits: [] }, says: /is not in the store/ },
    {
      what: 'one is there twice',
      breaks: { workUnits: [ROW, { ...ROW, id: 'other', last_seq: 0 }] },
      says: /more than once/,
    },
    { what: 'nobody answered', breaks: { ledger: [] }, says: /never accepted/ },
    {
      what: 'it was refused',
      breaks: { ledger: ledger({ what: 'refused', key: 'w1', code: 'handle_taken' }) },
      says: /was refused: handle_taken/,
    },
  ],
  'the ledger has one line an attempt': [
    { what: 'it has none', breaks: { lines: [] }, says: /is succeeded and has 0 lines/ },
    { what: 'it has two', breaks: { lines: [LINE, LINE] }, says: /has 2 lines/ },
    {
      what: 'one that runs has one',
      breaks: { attempts: [{ ...RUN, status: 'started' }], lines: [LINE] },
      says: /is started and has 1 lines/,
    },
    {
      what: 'one tells of no attempt',
      breaks: { lines: [LINE, { ...LINE, attemptId: 'nobody' }] },
      says: /tells of nobody, which is no attempt/,
    },
    { what: 'one lies', breaks: { lines: [{ ...LINE, rc: 1 }] }, says: /its line says exit 1/ },
    {
      what: 'one says that it was taken up again',
      breaks: { lines: [{ ...LINE, reattached: true }] },
      says: /its line says reattached true, its events false/,
    },
  ],
  'one at a time': [
    {
      what: 'two of one work unit',
      breaks: { journal: [BEGIN, { ...BEGIN, word: 'two_of_one_key', unit: second.unit }, END] },
      says: /two_of_one_key: w1/,
    },
    {
      what: 'two on one lease',
      breaks: { journal: [BEGIN, { ...BEGIN, word: 'two_on_one_lease', unit: second.unit }, END] },
      says: /two_on_one_lease: w1/,
    },
  ],
  'nothing twice': [
    {
      what: 'a body began twice in one unit',
      breaks: { journal: [BEGIN, BEGIN, END] },
      says: /began twice/,
    },
    {
      what: 'it ran again without a reason',
      breaks: { journal: [BEGIN, { ...BEGIN, unit: second.unit }, END] },
      says: /ran 2 times/,
    },
    {
      what: 'it ran again after a success',
      breaks: { attempts: [RUN, second] },
      says: /after it had succeeded/,
    },
    {
      what: 'what never started did run',
      breaks: { attempts: [{ ...RUN, status: 'lost', error_code: 'never_started' }, second] },
      says: /never to have started, and ran/,
    },
  ],
  'rows and processes agree': [
    {
      what: 'a process has no row',
      breaks: { processes: [PROCESS] },
      says: /process 7 without a row/,
    },
    {
      what: 'a running row has no process',
      breaks: { attempts: [{ ...RUN, status: 'started' }] },
      says: /said to be started, and no process/,
    },
  ],
  'no ended unit is loaded': [
    {
      what: 'an ended unit is loaded',
      breaks: { loaded: [`${UNIT} loaded failed failed`] },
      says: /still loaded/,
    },
  ],
  'everything comes to rest': [
    {
      what: 'work goes on for ever',
      breaks: { restless: ['w1'] },
      says: /did not come to its end/,
    },
  ],
  'the sequence is whole': [
    {
      what: 'a number is missing',
      breaks: { events: log(...EVENTS).filter(({ seq }) => seq !== 3) },
      says: /seq 4 stands at 3/,
    },
    {
      what: 'the row knows another last number',
      breaks: { workUnits: [{ ...ROW, last_seq: 99 }] },
      says: /last_seq 99/,
    },
  ],
  'an end is final': [
    {
      what: 'something happened after the end',
      breaks: { events: log(...EVENTS, ['work_unit.queued', { reason: 'never_started' }]) },
      says: /work_unit.queued \(seq 11\) after work_unit.succeeded/,
    },
    {
      what: 'a success was retried',
      breaks: { events: log(...EVENTS, ['work_unit.queued', { reason: 'retry' }]) },
      says: /after work_unit.succeeded/,
    },
    {
      what: 'the row says another end',
      breaks: { workUnits: [{ ...ROW, status: 'failed' }] },
      says: /is failed, and its last event says succeeded/,
    },
  ],
  'slots stay within limits': [
    { what: 'one too many', breaks: { limits: { 'runner command': 0 } }, says: /held 1 times/ },
    {
      what: 'one was never given back',
      breaks: { events: log(...EVENTS.filter(([type]) => type !== 'semaphore.released')) },
      says: /never given back/,
    },
    {
      what: 'one was given back twice',
      breaks: { events: log(...EVENTS, ['semaphore.released', SLOT]) },
      says: /once too often/,
    },
  ],
  'leases are exclusive': [
    {
      what: 'two hold it',
      breaks: {
        events: log(
          ['lease.acquired', LEASE],
          ['lease.acquired', LEASE],
          ['lease.released', LEASE],
          ['lease.released', LEASE],
        ),
      },
      says: /held 2 times/,
    },
  ],
  'each spool line is one event': [
    { what: 'a line is missing', breaks: { spools: {} }, says: /0 spool lines, 1 events/ },
    {
      what: 'a line came twice',
      breaks: { events: log(...EVENTS, ['started', { pid: 7 }, 'runner']) },
      says: /1 spool lines, 2 events/,
    },
    {
      what: 'a line was changed',
      breaks: { spools: { [ATTEMPT]: [{ n: 1, ts: TS, type: 'started', data: { pid: 8 } }] } },
      says: /is not what its spool line says/,
    },
    {
      what: 'the wrapper left a number out',
      breaks: { spools: { [ATTEMPT]: [{ n: 2, ts: TS, type: 'started', data: { pid: 7 } }] } },
      says: /is numbered 2/,
    },
  ],
  'the outcome is the implied one': [
    {
      what: 'untouched work failed',
      breaks: ended('failed', 'killed'),
      says: /failed\/killed; may be succeeded/,
    },
    {
      what: 'a success whose body did not end',
      breaks: { journal: [BEGIN] },
      says: /did not run to its end/,
    },
    {
      what: 'work that has to fail succeeded',
      breaks: { work: [work('failing')] },
      says: /though its last word was good/,
    },
    {
      what: 'a good last word was lost with the host',
      breaks: {
        ...ended('failed', 'runtime_interrupted_no_checkpoint'),
        attempts: [{ ...RUN, status: 'lost' }],
        ledger: ledger(...ACCEPTED, struck([LOST])),
      },
      says: /though its last word was good/,
    },
    {
      what: 'lost work of Pi was given up',
      breaks: {
        ...ended('failed', 'runtime_interrupted_no_checkpoint'),
        work: [work('pi')],
        ledger: ledger(...ACCEPTED, struck([LOST], 'power-cut')),
      },
      says: /no_checkpoint; may be succeeded/,
    },
    {
      what: 'a cancellation nobody asked for',
      breaks: ended('cancelled', 'cancelled_by_request'),
      says: /cancelled\/cancelled_by_request; may be/,
    },
    {
      what: 'the end of the host read as a cancellation',
      breaks: {
        ...ended('cancelled', 'stopped_externally'),
        ledger: ledger(...ACCEPTED, struck([LOST])),
      },
      says: /cancelled\/stopped_externally; may be/,
    },
    {
      what: 'an accepted cancellation became a stop from outside',
      breaks: {
        ...ended('cancelled', 'stopped_externally'),
        ledger: ledger(
          ...ACCEPTED,
          struck(['cancelled/stopped_externally']),
          { what: 'asked', key: 'w1', act: 'cancel' },
          { what: 'answered', key: 'w1', act: 'cancel', status: 'cancelling', code: null },
        ),
      },
      says: /though its cancellation was acknowledged/,
    },
    {
      what: 'an acknowledged cancellation became a success',
      breaks: {
        ledger: ledger(
          ...ACCEPTED,
          { what: 'asked', key: 'w1', act: 'cancel' },
          { what: 'answered', key: 'w1', act: 'cancel', status: 'cancelling', code: null },
        ),
      },
      says: /though its cancellation was acknowledged/,
    },
  ],
  'an attempt is lost only by what can lose it': [
    {
      what: 'nothing tells how an untouched one ended',
      breaks: { attempts: [{ ...RUN, status: 'lost', error_code: 'no_evidence' }, second] },
      says: /-1\.service \(plain\) is lost: no_evidence/,
    },
    {
      what: 'the host is said to have gone, and did not',
      breaks: {
        attempts: [{ ...RUN, status: 'lost', error_code: 'host_shutdown' }, second],
        ledger: ledger(...ACCEPTED, struck([LOST], 'exit-missing')),
      },
      says: /is lost: host_shutdown/,
    },
  ],
  'daemons end only when ended': [
    {
      what: 'one ended by itself',
      breaks: {
        ledger: ledger(...ACCEPTED, {
          what: 'daemon_ended',
          pid: 9,
          how: '1',
          wanted: false,
          said: 'outlived: internal: TypeError',
        }),
      },
      says: /ended by itself with 1: outlived: internal: TypeError/,
    },
    {
      what: 'the last one did not stop in order',
      breaks: { lastDaemon: 'SIGKILL' },
      says: /told to end: SIGKILL/,
    },
  ],
};

test('a good history breaks nothing', () => {
  expect(violations(history())).toEqual([]);
});

test('every invariant has a history that breaks it', () => {
  expect(Object.keys(CASES)).toEqual(Object.keys(INVARIANTS));
});

const BROKEN = Object.entries(CASES).flatMap(([name, cases]) =>
  cases.map((broken) => ({ name, ...broken })),
);

test.each(BROKEN)('$name: fails when $what', ({ name, breaks, says }) => {
  const found = INVARIANTS[name]?.(history(breaks)) ?? [];
  expect(found.join('\n')).toMatch(says);
});

describe('what faults allow', () => {
  test.each<[string, Partial<History>]>([
    [
      'work that a fault struck ends as the fault implies',
      { ...ended('failed', 'killed'), ledger: ledger(...ACCEPTED, struck(['failed/killed'])) },
    ],
    [
      'a failure is retried',
      {
        journal: [BEGIN, { ...BEGIN, unit: second.unit }, { ...END, unit: second.unit }],
        attempts: [{ ...RUN, status: 'failed' }, second],
        ledger: ledger(...ACCEPTED, struck(['failed/killed'])),
        workUnits: [{ ...ROW, last_seq: 5 }],
        events: log(
          ['started', { pid: 7 }, 'runner'],
          ['work_unit.failed'],
          ['work_unit.queued', { reason: 'retry' }],
          ['work_unit.succeeded'],
          ['diagnostic.stale_event'],
        ),
      },
    ],
    [
      'lost work of Pi goes on in its next attempt',
      {
        work: [work('pi')],
        journal: [BEGIN],
        attempts: [{ ...RUN, status: 'lost', error_code: 'host_shutdown' }, second],
        ledger: ledger(...ACCEPTED, struck([LOST], 'power-cut')),
      },
    ],
    [
      'what was stopped before its cancellation was asked for stays so',
      {
        ...ended('cancelled', 'stopped_externally'),
        ledger: ledger(
          ...ACCEPTED,
          struck(['cancelled/stopped_externally']),
          { what: 'asked', key: 'w1', act: 'cancel' },
          { what: 'answered', key: 'w1', act: 'cancel', status: 'cancelled', code: null },
        ),
      },
    ],
    [
      'a damaged spool has other lines than the store',
      {
        spools: {},
        ledger: ledger(...ACCEPTED, { what: 'damaged', file: 'spool', attempt: ATTEMPT }),
      },
    ],
    [
      'a daemon without a bus gives up and is started again',
      {
        ledger: ledger(...ACCEPTED, struck([], 'bus-away'), {
          what: 'daemon_ended',
          pid: 9,
          how: '1',
          wanted: false,
          said: 'outlived: no_user_manager: …',
        }),
      },
    ],
  ])('%s', (_, changes) => {
    expect(violations(history(changes))).toEqual([]);
  });
});
