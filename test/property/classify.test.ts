import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { classify, RULES } from '../../src/domain/classify.ts';
import type { Evidence } from '../../src/domain/evidence.ts';
import { CANCELLATIONS, FAILURES, LOSSES } from '../../src/domain/outcome-codes.ts';
import { anyEvidence, end, HARD_TIMEOUT_MS, lastWord, NOTHING, OPENED } from './evidence.ts';

const RUNS = { numRuns: 5_000 };
const NUMBERS = RULES.map(({ number }) => number);
const ruleOf = (number: number) => {
  const rule = RULES.find((candidate) => candidate.number === number);
  if (!rule) throw new Error(`no rule ${number}`);
  return rule;
};

describe('the classification', () => {
  it('is total: every evidence has an outcome of a known kind and code', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const { rule, outcome } = classify(known);
        expect(NUMBERS).toContain(rule);
        switch (outcome.kind) {
          case 'succeeded':
          case 'never_started':
            break;
          case 'failed':
            expect(FAILURES).toHaveProperty(outcome.code);
            break;
          case 'cancelled':
            expect(CANCELLATIONS).toHaveProperty(outcome.code);
            break;
          case 'lost':
            expect(LOSSES).toHaveProperty(outcome.code);
            break;
        }
        if ('message' in outcome) expect(outcome.message).not.toBe('');
      }),
      RUNS,
    );
  });

  it('is pure: the same evidence twice is the same verdict, and is left as it was', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const before = structuredClone(known);
        expect(classify(known)).toEqual(classify(structuredClone(known)));
        expect(known).toEqual(before);
      }),
    );
  });

  it('is ordered: the first rule that answers decides', () => {
    expect(NUMBERS).toEqual(Array.from({ length: 15 }, (_, index) => index + 1));
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const first = RULES.find((rule) => rule.decide(known) !== null);
        expect(classify(known)).toEqual({ rule: first?.number, outcome: first?.decide(known) });
      }),
      RUNS,
    );
  });

  it('calls nothing a cancellation by a person that no person did', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const { outcome } = classify({ ...known, intent: null });
        if (outcome.kind !== 'cancelled') return;
        expect(['operator', 'external']).toContain(outcome.actor);
        expect(['halted', 'stopped_externally']).toContain(outcome.code);
      }),
      RUNS,
    );
  });

  it('calls nothing a success without a good last word', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const { outcome } = classify(known);
        if (outcome.kind === 'succeeded') expect(known.lastWord?.verdict).toBe('ok');
      }),
      RUNS,
    );
  });

  it('guesses at nobody who stopped what went away with its host and left no exit', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        expect(classify({ ...known, end: null, hostChanged: true }).rule).not.toBe(8);
      }),
      RUNS,
    );
  });

  it('sends back to the queue only what certainly ran nothing', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        if (classify(known).outcome.kind !== 'never_started') return;
        expect(known).toMatchObject({ claim: 'revoked', opened: null });
      }),
      RUNS,
    );
  });

  it('lets a stored decision win over everything that the end looks like', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const { intent } = known;
        fc.pre(intent !== null);
        const { outcome } = classify(known);
        if (intent.kind === 'suspend') {
          expect(outcome).toMatchObject({ kind: 'lost', code: 'suspended' });
        } else {
          const kind = intent.kind === 'fail' ? 'failed' : 'cancelled';
          expect(outcome).toMatchObject({ kind, code: intent.code });
        }
      }),
    );
  });
});

/** For each rule the least that makes it answer. */
const LEAST: Readonly<Record<number, Partial<Evidence>>> = {
  1: { intent: { kind: 'cancel', actor: 'user', code: 'cancelled_by_request', reason: null } },
  2: { intent: { kind: 'suspend', actor: 'system', reason: null } },
  3: { intent: { kind: 'fail', actor: 'system', code: 'idle_timeout', reason: null } },
  4: { haltMarker: true },
  5: { saidDeadline: true },
  6: { claim: 'revoked', opened: null, end: null },
  7: { end: null, lastWord: null, hostChanged: true },
  8: { saidToldToStop: true },
  9: { end: end('signal killed KILL') },
  10: { opened: null, end: end('exit-code exited 203') },
  11: { lastWord: lastWord({ verdict: 'error', code: 'provider_auth' }) },
  12: { end: end('exit-code exited 3') },
  13: { lastWord: lastWord(), end: null },
  14: { lastWord: null, end: end('success exited 0') },
  15: {},
};

/** Other evidence for a rule, for pairs that its least evidence excludes. */
const OTHER: Readonly<Record<number, readonly Partial<Evidence>[]>> = {
  5: [{ end: end('timeout killed TERM', { elapsedMs: HARD_TIMEOUT_MS }) }],
  6: [{ claim: 'revoked', opened: null, end: end('exit-code exited 191') }],
  7: [
    { end: null, saidToldToStop: true, hostChanged: true },
    { end: end('success killed TERM', { managerState: 'stopping' }) },
    ...['exit-code exited 203', 'exit-code exited 3', 'success exited 0'].map((record) => ({
      saidToldToStop: true,
      end: end(record, { managerState: 'stopping' }),
    })),
  ],
  8: [{ end: end('success killed TERM') }],
  9: [
    { end: end('oom-kill exited 0') },
    { end: end('oom-kill exited 203') },
    { end: end('oom-kill exited 191') },
    { end: end('watchdog killed TERM') },
  ],
  10: [{ opened: null, end: end('exit-code exited 243') }],
  12: [{ end: end('exit-code exited 203') }],
  13: [{ lastWord: lastWord(), end: end('success exited 0') }],
};

/** Pairs whose conditions contradict each other: one intent only, one end only, a last word or none. */
const NEVER_TOGETHER = new Set([
  ...['1 2', '1 3', '2 3'],
  '6 10',
  ...['10 13', '10 14', '11 13', '11 14', '12 13', '12 14', '13 14'],
]);

const cases = (number: number): readonly Partial<Evidence>[] => [
  LEAST[number] ?? {},
  ...(OTHER[number] ?? []),
];

/** Evidence for which both rules answer, null when no combination of their cases does. */
function both(first: number, second: number): Evidence | null {
  for (const one of cases(first)) {
    for (const other of cases(second)) {
      for (const merged of [
        { ...NOTHING, opened: OPENED, ...other, ...one },
        { ...NOTHING, opened: OPENED, ...one, ...other },
      ]) {
        if (ruleOf(first).decide(merged) && ruleOf(second).decide(merged)) return merged;
      }
    }
  }
  return null;
}

const PAIRS = NUMBERS.flatMap((first) =>
  NUMBERS.filter((second) => second > first).map((second) => [first, second] as const),
);

describe('each rule', () => {
  it.each(NUMBERS)('%i decides what only it (and the last one) can answer', (number) => {
    const known = { ...NOTHING, opened: OPENED, ...LEAST[number] };
    expect(classify(known).rule).toBe(number);
  });

  it.each(PAIRS)('%i comes before %i wherever both could answer', (first, second) => {
    const known = both(first, second);
    expect(known === null).toBe(NEVER_TOGETHER.has(`${first} ${second}`));
    if (known === null) return;
    const later = RULES.filter(({ number }) => number < first && ruleOf(number).decide(known));
    expect(later, 'the case must not be decided before either').toEqual([]);
    expect(classify(known).rule).toBe(first);
  });

  it('the pairs said to exclude each other never answer together', () => {
    fc.assert(
      fc.property(anyEvidence, (known) => {
        const answering = NUMBERS.filter((number) => ruleOf(number).decide(known) !== null);
        for (const first of answering) {
          for (const second of answering) {
            expect(NEVER_TOGETHER.has(`${first} ${second}`), `${first} and ${second}`).toBe(false);
          }
        }
      }),
      RUNS,
    );
  });
});
