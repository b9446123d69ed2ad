/** Evidence for tests: a plain case to vary, and generators of every case there can be. */
import fc from 'fast-check';
import type { Evidence, Intent, ProcessEnd } from '../../src/domain/evidence.ts';
import {
  CANCELLATIONS,
  type CancellationCode,
  FAILURES,
  type FailureCode,
} from '../../src/domain/outcome-codes.ts';
import type { LastWord, Opened } from '../../src/domain/spool.ts';
import { ACTORS } from '../../src/domain/work-unit.ts';

export const HARD_TIMEOUT_MS = 3_600_000;

export const OPENED: Opened = {
  attemptId: '01890a5d-ac96-774b-bcce-b302099a8057',
  workUnitId: '01890a5d-ac96-774b-bcce-b302099a8058',
  nonce: '0123456789abcdef0123456789abcdef',
  invocationId: '81e06dfa81e06dfa81e06dfa81e06dfa',
  bootId: 'b0071d00-0000-4000-8000-000000000000',
  uptimeSeconds: 1_000,
  pid: 102,
  runner: 'pi',
};

/** Nothing is known: what rule 15 is for. */
export const NOTHING: Evidence = {
  intent: null,
  haltMarker: false,
  end: null,
  opened: null,
  lastWord: null,
  saidDeadline: false,
  saidToldToStop: false,
  approvalOpen: false,
  claim: 'wrapper',
  startProblem: null,
  hardTimeoutMs: HARD_TIMEOUT_MS,
  hostChanged: false,
};

/** A run of which the spool is there. */
export const evidence = (known: Partial<Evidence> = {}): Evidence => ({
  ...NOTHING,
  opened: OPENED,
  ...known,
});

/** An end as an exit record tells it: `$SERVICE_RESULT $EXIT_CODE $EXIT_STATUS`. */
export function end(record: string, known: Partial<ProcessEnd> = {}): ProcessEnd {
  const [result = '', code = '', status = ''] = record.split(' ');
  const how = code === 'exited' || code === 'killed' || code === 'dumped' ? code : 'unknown';
  return {
    witness: 'record',
    result,
    how,
    status: how === 'exited' ? Number(status) : null,
    signal: how === 'killed' || how === 'dumped' ? status : null,
    elapsedMs: 60_000,
    managerState: 'running',
    ...known,
  };
}

export const lastWord = (known: Partial<LastWord> = {}): LastWord => ({
  verdict: 'ok',
  code: null,
  message: null,
  text: 'done',
  exitCode: 0,
  signal: null,
  usage: null,
  costUsd: null,
  leftovers: [],
  retryAt: null,
  ...known,
});

const maybe = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: null });
const actor = fc.constantFrom(...ACTORS);
const reason = maybe(fc.string({ maxLength: 20 }));
const failureCode = fc.constantFrom(...(Object.keys(FAILURES) as FailureCode[]));
const cancellationCode = fc.constantFrom(...(Object.keys(CANCELLATIONS) as CancellationCode[]));

const intents: fc.Arbitrary<Intent> = fc.oneof(
  fc.record({ kind: fc.constant('cancel'), actor, code: cancellationCode, reason }),
  fc.record({
    kind: fc.constant('interrupt'),
    actor,
    code: fc.constant('interrupted_by_prompt'),
    reason,
  }),
  fc.record({ kind: fc.constant('suspend'), actor, reason }),
  fc.record({ kind: fc.constant('fail'), actor, code: failureCode, reason }),
);

const RESULTS = [
  'success',
  'exit-code',
  'signal',
  'timeout',
  'oom-kill',
  'watchdog',
  'core-dump',
  'resources',
  'protocol',
  'start-limit-hit',
  'unknown',
  '',
];

const ends: fc.Arbitrary<ProcessEnd> = fc
  .record({
    witness: fc.constantFrom('unit', 'record', 'journal'),
    result: fc.constantFrom(...RESULTS),
    how: fc.constantFrom('exited', 'killed', 'dumped', 'unknown'),
    status: maybe(
      fc.oneof(fc.constantFrom(0, 1, 190, 191, 192, 194, 200, 203, 226, 243), fc.nat({ max: 255 })),
    ),
    signal: maybe(fc.constantFrom('TERM', 'KILL', 'INT', 'SEGV', 'ABRT', 'RTMIN+3')),
    elapsedMs: maybe(
      fc.oneof(fc.constantFrom(0, HARD_TIMEOUT_MS - 1, HARD_TIMEOUT_MS), fc.nat({ max: 10 ** 8 })),
    ),
    managerState: maybe(fc.constantFrom('running', 'stopping', 'degraded', 'starting')),
  })
  .map((known): ProcessEnd => {
    // A witness says one or the other; what does not belong to `how` is null.
    const exited = known.how === 'exited';
    const signalled = known.how === 'killed' || known.how === 'dumped';
    return {
      ...known,
      status: exited ? known.status : null,
      signal: signalled ? known.signal : null,
    };
  });

const words: fc.Arbitrary<LastWord> = fc
  .record({
    verdict: fc.constantFrom('ok', 'error', 'stopped'),
    code: maybe(
      fc.oneof(failureCode, fc.constantFrom('', 'constructor', '__proto__', 'of_a_newer_wrapper')),
    ),
    message: maybe(fc.string({ maxLength: 20 })),
    leftovers: fc.array(fc.constant({ pid: 7, name: 'server' }), { maxLength: 1 }),
  })
  .map((known) => lastWord(known));

/** Any evidence at all, also combinations that no real attempt leaves. */
export const anyEvidence: fc.Arbitrary<Evidence> = fc.record({
  intent: fc.option(intents, { nil: null, freq: 3 }),
  haltMarker: fc.boolean(),
  end: fc.option(ends, { nil: null, freq: 5 }),
  opened: maybe(fc.constant(OPENED)),
  lastWord: maybe(words),
  saidDeadline: fc.boolean(),
  saidToldToStop: fc.boolean(),
  approvalOpen: fc.boolean(),
  claim: fc.constantFrom('none', 'wrapper', 'revoked'),
  startProblem: maybe(
    fc.record({
      kind: fc.constantFrom('refused', 'unanswered', 'name_taken'),
      reason: fc.string({ maxLength: 20 }),
    }),
  ),
  hardTimeoutMs: fc.constantFrom(1_000, HARD_TIMEOUT_MS),
  hostChanged: fc.boolean(),
  leftoverPolicy: fc.constantFrom('ignore', 'fail'),
});
