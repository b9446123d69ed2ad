import { describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/domain/classify.ts';
import { classify } from '../../src/domain/classify.ts';
import type { Evidence } from '../../src/domain/evidence.ts';
import { FAILURES } from '../../src/domain/outcome-codes.ts';
import { end, evidence, HARD_TIMEOUT_MS, lastWord } from '../property/evidence.ts';

const verdict = (known: Partial<Evidence>) => classify(evidence(known));

/** One line a reader can check against the table of rules: rule, kind, code. */
const short = (known: Partial<Evidence>): string => {
  const { rule, outcome } = verdict(known);
  return `${rule} ${outcome.kind}${'code' in outcome ? ` ${outcome.code}` : ''}`;
};

const message = (outcome: Outcome): string => ('message' in outcome ? outcome.message : '');

describe('rules 1 to 3: a decision that was stored before', () => {
  it('is a cancellation by its actor, with the reason given', () => {
    expect(
      verdict({
        intent: {
          kind: 'cancel',
          actor: 'user',
          code: 'cancelled_by_request',
          reason: 'wrong repo',
        },
        end: end('success killed TERM'),
      }),
    ).toEqual({
      rule: 1,
      outcome: {
        kind: 'cancelled',
        code: 'cancelled_by_request',
        actor: 'user',
        message: 'wrong repo',
      },
    });
  });

  it('stays a cancellation when the runner had finished well in the meantime', () => {
    const intent = {
      kind: 'cancel',
      actor: 'user',
      code: 'cancelled_by_request',
      reason: null,
    } as const;
    expect(short({ intent, lastWord: lastWord(), end: end('success exited 0') })).toBe(
      '1 cancelled cancelled_by_request',
    );
  });

  it('is an interruption by a new prompt', () => {
    const intent = {
      kind: 'interrupt',
      actor: 'user',
      code: 'interrupted_by_prompt',
      reason: null,
    } as const;
    expect(short({ intent, end: end('signal killed KILL') })).toBe(
      '2 cancelled interrupted_by_prompt',
    );
  });

  it('is a suspension: the attempt is lost, nobody cancelled anything', () => {
    const intent = { kind: 'suspend', actor: 'system', reason: 'shutdown' } as const;
    expect(short({ intent, end: end('success killed TERM') })).toBe('2 lost suspended');
  });

  it.each(['idle_timeout', 'heartbeat_timeout', 'tool_timeout', 'budget_exceeded'] as const)(
    'is the failure %s, however the stopped process then looks',
    (code) => {
      const intent = { kind: 'fail', actor: 'system', code, reason: null } as const;
      const { rule, outcome } = verdict({ intent, end: end('timeout killed KILL') });
      expect({ rule, outcome }).toEqual({
        rule: 3,
        outcome: { kind: 'failed', code, message: FAILURES[code] },
      });
    },
  );
});

describe('rule 4: a halt marker', () => {
  it('is an operator who halted it', () => {
    expect(verdict({ haltMarker: true, end: end('success killed TERM') })).toMatchObject({
      rule: 4,
      outcome: { kind: 'cancelled', code: 'halted', actor: 'operator' },
    });
  });
});

describe('rule 5: the deadline', () => {
  it('was met by the wrapper itself', () => {
    expect(
      short({
        saidDeadline: true,
        lastWord: lastWord({ verdict: 'error', code: 'hard_timeout' }),
        end: end('exit-code exited 1', { elapsedMs: HARD_TIMEOUT_MS - 2_000 }),
      }),
    ).toBe('5 failed hard_timeout');
  });

  it.each(['timeout killed TERM', 'timeout killed KILL'])(
    'was kept by systemd (%s after the whole time)',
    (record) => {
      expect(short({ end: end(record, { elapsedMs: HARD_TIMEOUT_MS + 40 }) })).toBe(
        '5 failed hard_timeout',
      );
    },
  );

  it('was kept by systemd although the wrapper clock ran a moment short', () => {
    const elapsedMs = HARD_TIMEOUT_MS - 900;
    expect(short({ end: end('timeout killed TERM', { elapsedMs }) })).toBe('5 failed hard_timeout');
  });

  it('with a question open is a suspension, not a failure', () => {
    expect(short({ saidDeadline: true, approvalOpen: true })).toBe('5 lost suspended');
  });
});

describe('Result=timeout has three meanings', () => {
  it('the deadline: the whole time is over', () => {
    expect(short({ end: end('timeout killed KILL', { elapsedMs: HARD_TIMEOUT_MS }) })).toBe(
      '5 failed hard_timeout',
    );
  });

  it('a stubborn stop: killed long before the deadline', () => {
    expect(short({ end: end('timeout killed KILL', { elapsedMs: 90_000 }) })).toBe(
      '8 cancelled stopped_externally',
    );
  });

  it('a stubborn stop, too, where no witness knows the elapsed time', () => {
    expect(short({ end: end('timeout killed KILL', { elapsedMs: null }) })).toBe(
      '8 cancelled stopped_externally',
    );
  });

  it('stubborn leftovers or a hung exit record: the main process itself exited well', () => {
    expect(short({ lastWord: lastWord(), end: end('timeout exited 0') })).toBe('13 succeeded');
    expect(
      short({
        lastWord: lastWord({ verdict: 'error', code: 'model_error' }),
        end: end('timeout exited 1'),
      }),
    ).toBe('11 failed model_error');
  });
});

const NEVER_STARTED = { kind: 'never_started', reason: null, counts: true };

describe('rule 6: nothing ran', () => {
  it('when recovery won the claim and there is neither spool nor record', () => {
    const known = { claim: 'revoked', opened: null, end: null } as const;
    expect(verdict(known)).toEqual({ rule: 6, outcome: NEVER_STARTED });
    expect(verdict({ ...known, hostChanged: true }).rule).toBe(6);
  });

  it('when a late start found the claim revoked and left', () => {
    const late = end('exit-code exited 191');
    expect(verdict({ claim: 'revoked', opened: null, end: late })).toEqual({
      rule: 6,
      outcome: NEVER_STARTED,
    });
  });

  it('is not said of a start that systemd failed, revoked or not', () => {
    const missing = end('exit-code exited 203');
    expect(short({ claim: 'revoked', opened: null, end: missing })).toBe('10 failed launch_failed');
  });

  it.each([
    ['is a start that timed out in a frozen slice', 'timeout killed TERM'],
    ['is one that had to be killed', 'timeout killed KILL'],
    ['was killed before its wrapper had begun', 'signal killed KILL'],
    ['ran out of memory before its wrapper had begun', 'oom-kill killed KILL'],
    ['could not be forked', 'resources unknown'],
  ])('when it %s: nobody stopped it and nothing ran', (_, record) => {
    expect(short({ claim: 'revoked', opened: null, end: end(record) })).toBe('6 never_started');
  });

  it('is not said when somebody stopped it before its wrapper had begun', () => {
    const known = { claim: 'revoked', opened: null, end: end('success killed TERM') } as const;
    expect(short(known)).toBe('8 cancelled stopped_externally');
  });

  it('but a manager that goes down stops nobody’s work: it is started again', () => {
    const stopping = end('success killed TERM', { managerState: 'stopping' });
    expect(short({ claim: 'revoked', opened: null, end: stopping })).toBe('6 never_started');
  });

  it('carries what systemd said against the start', () => {
    const startProblem = { kind: 'refused', reason: 'Unit x.slice is masked.' } as const;
    expect(verdict({ claim: 'revoked', opened: null, startProblem }).outcome).toEqual({
      kind: 'never_started',
      reason: 'Unit x.slice is masked.',
      counts: true,
    });
  });

  it('counts for nothing when a unit that is not ours had the name', () => {
    const startProblem = { kind: 'name_taken', reason: 'taken' } as const;
    expect(verdict({ claim: 'revoked', opened: null, startProblem }).outcome).toMatchObject({
      counts: false,
    });
  });

  it('is not said when the wrapper holds the claim: it may have run', () => {
    expect(short({ claim: 'wrapper', opened: null })).toBe('15 lost no_evidence');
  });
});

describe('rule 7: the host went away', () => {
  it('when SIGTERM came while the manager was stopping', () => {
    const known = end('success killed TERM', { managerState: 'stopping' });
    expect(short({ end: known, saidToldToStop: true })).toBe('7 lost host_shutdown');
  });

  it.each([
    ['needed SIGKILL', { end: 'timeout killed KILL' }],
    ['was killed at once', { end: 'signal killed KILL' }],
    ['had been told to stop and exited by itself', { end: 'exit-code exited 1', told: true }],
  ])(
    'also for a unit that %s then',
    (_, { end: record, told = false }: { end: string; told?: boolean }) => {
      const known = { end: end(record, { managerState: 'stopping' }), saidToldToStop: told };
      expect(short(known)).toBe('7 lost host_shutdown');
    },
  );

  it.each([
    ['ran out of memory', 'oom-kill killed KILL', '9 failed oom'],
    ['failed by itself', 'exit-code exited 3', '12 failed exit_code'],
  ])('but not for one that %s while the manager was stopping', (_, record, as) => {
    expect(short({ end: end(record, { managerState: 'stopping' }) })).toBe(as);
  });

  it('needs the manager to say so: the same SIGTERM in a running manager is a stop', () => {
    const known = end('success killed TERM', { managerState: 'running' });
    expect(short({ end: known, saidToldToStop: true })).toBe('8 cancelled stopped_externally');
    expect(short({ end: { ...known, managerState: null } })).toBe('8 cancelled stopped_externally');
  });

  it('when there is no witness at all and boot or manager are others now', () => {
    expect(short({ end: null, hostChanged: true })).toBe('7 lost host_shutdown');
  });

  it('when all that is left is "told to stop", and boot or manager are others now', () => {
    const told = { end: null, saidToldToStop: true };
    expect(short({ ...told, hostChanged: true })).toBe('7 lost host_shutdown');
    const stopped = lastWord({ verdict: 'stopped' });
    expect(short({ ...told, hostChanged: true, lastWord: stopped })).toBe('7 lost host_shutdown');
    expect(short({ ...told, hostChanged: false })).toBe('8 cancelled stopped_externally');
  });

  it('is not said of a stop that the exit record still tells of', () => {
    const known = { end: end('success killed TERM'), saidToldToStop: true, hostChanged: true };
    expect(short(known)).toBe('8 cancelled stopped_externally');
  });

  it('is not said of a run that had said its last word before the power went', () => {
    expect(short({ hostChanged: true, lastWord: lastWord() })).toBe('13 succeeded');
    const word = lastWord({ verdict: 'error', code: 'rate_limited' });
    expect(short({ hostChanged: true, lastWord: word })).toBe('11 failed rate_limited');
  });
});

describe('rule 8: stopped from outside', () => {
  it('success killed TERM is a stop, not a success', () => {
    expect(verdict({ end: end('success killed TERM') })).toMatchObject({
      rule: 8,
      outcome: { kind: 'cancelled', code: 'stopped_externally', actor: 'external' },
    });
  });

  it('kill -s TERM looks like a stop and is called the same', () => {
    expect(short({ end: end('signal killed TERM') })).toBe('8 cancelled stopped_externally');
  });

  it('is believed of the spool alone when the exit is not known', () => {
    const word = lastWord({ verdict: 'stopped' });
    expect(short({ saidToldToStop: true, lastWord: word, end: null })).toBe(
      '8 cancelled stopped_externally',
    );
  });

  it('is believed of the spool when a told wrapper exited by itself', () => {
    expect(short({ saidToldToStop: true, end: end('success exited 0') })).toBe(
      '8 cancelled stopped_externally',
    );
  });
});

describe('rule 9: an abnormal end', () => {
  it.each([
    ['oom-kill killed KILL', 'oom'],
    ['oom-kill exited 0', 'oom'],
    ['watchdog killed ABRT', 'watchdog'],
    ['core-dump dumped SEGV', 'crashed'],
    ['signal dumped ABRT', 'crashed'],
    ['signal killed KILL', 'killed'],
    ['signal killed INT', 'killed'],
  ])('%s is %s', (record, code) => {
    expect(short({ end: end(record) })).toBe(`9 failed ${code}`);
  });

  it('is oom when systemd stopped the rest with SIGTERM after one process was out of memory; T07 systemd#25376', () => {
    // OOMPolicy=stop: the wrapper is told to stop by systemd itself, nobody outside did it.
    expect(short({ end: end('oom-kill killed TERM'), saidToldToStop: true })).toBe('9 failed oom');
  });

  it('is watchdog when systemd ended it with SIGTERM for that', () => {
    expect(short({ end: end('watchdog killed TERM') })).toBe('9 failed watchdog');
  });

  it('names the signal', () => {
    expect(message(verdict({ end: end('signal killed KILL') }).outcome)).toBe('SIGKILL');
  });
});

describe('rule 10: it was never launched', () => {
  it('194 is a disk that was full, in words', () => {
    const { outcome } = verdict({ opened: null, end: end('exit-code exited 194') });
    expect(outcome).toMatchObject({ kind: 'failed', code: 'disk_full' });
    expect(message(outcome)).toMatch(/no space/);
  });

  it.each([
    [200, 'CHDIR'],
    [203, 'EXEC'],
    [226, 'NAMESPACE'],
    [243, 'CREDENTIALS'],
    [231, 'systemd'],
  ])('status %i before the first line is %s', (status, name) => {
    const known = { opened: null, end: end(`exit-code exited ${status}`) };
    expect(short(known)).toBe('10 failed launch_failed');
    expect(message(verdict(known).outcome)).toBe(`${name} (status ${status})`);
  });

  it.each([190, 192])('status %i of the wrapper itself is told in words', (status) => {
    const known = { opened: null, end: end(`exit-code exited ${status}`) };
    expect(short(known)).toBe('10 failed launch_failed');
    expect(message(verdict(known).outcome)).toContain('the wrapper could not');
  });

  it.each([199, 244, 255, 1])('status %i is not systemd’s', (status) => {
    expect(short({ opened: null, end: end(`exit-code exited ${status}`) })).toBe(
      '12 failed exit_code',
    );
  });

  it('is not said once the spool has begun: then the program itself exited so', () => {
    expect(short({ end: end('exit-code exited 203') })).toBe('12 failed exit_code');
  });
});

describe('rule 11: the last word is an error', () => {
  it.each([
    'provider_auth',
    'provider_unavailable',
    'rate_limited',
    'context_overflow',
    'model_error',
    'cwd_missing',
    'spawn_error',
    'disk_full',
  ])('of code %s', (code) => {
    const word = lastWord({ verdict: 'error', code, message: 'what the runner said' });
    const known = { lastWord: word, end: end('exit-code exited 1') };
    expect(short(known)).toBe(`11 failed ${code}`);
    expect(message(verdict(known).outcome)).toBe('what the runner said');
  });

  it.each([null, 'of_a_newer_wrapper', 'toString', '__proto__'])(
    'of code %s reads as runner_error',
    (code) => {
      const word = lastWord({ verdict: 'error', code });
      expect(short({ lastWord: word, end: end('exit-code exited 1') })).toBe(
        '11 failed runner_error',
      );
    },
  );

  it('counts more than an exit status of 0', () => {
    const word = lastWord({ verdict: 'error', code: 'provider_auth' });
    expect(short({ lastWord: word, end: end('success exited 0') })).toBe('11 failed provider_auth');
  });
});

describe('rule 12: an exit status other than 0', () => {
  it('is told with the number, also against a good last word', () => {
    const known = { lastWord: lastWord(), end: end('exit-code exited 3') };
    expect(short(known)).toBe('12 failed exit_code');
    expect(message(verdict(known).outcome)).toBe('status 3');
  });

  it('is not made up where the status is not known', () => {
    const unknown = end('success exited 0', { status: null });
    expect(short({ lastWord: lastWord(), end: unknown })).toBe('13 succeeded');
    expect(short({ end: unknown })).toBe('15 lost no_evidence');
  });
});

describe('rule 13: success', () => {
  it.each(['running', 'stopping'])(
    'is a good last word, whoever sent a SIGTERM between it and the exit; manager %s',
    (managerState) => {
      const term = end('success killed TERM', { managerState });
      expect(short({ lastWord: lastWord(), end: term })).toBe('13 succeeded');
    },
  );

  it('is not a good word of a wrapper that had been told to stop before', () => {
    const known = { lastWord: lastWord(), end: end('success killed TERM'), saidToldToStop: true };
    expect(short(known)).toBe('8 cancelled stopped_externally');
  });

  it('is not a good word before SIGKILL, memory or the watchdog', () => {
    for (const record of ['signal killed KILL', 'oom-kill killed TERM', 'watchdog killed TERM']) {
      expect(short({ lastWord: lastWord(), end: end(record) }), record).toMatch(/^9 failed /);
    }
  });

  it('is a good last word and exit status 0', () => {
    expect(short({ lastWord: lastWord(), end: end('success exited 0') })).toBe('13 succeeded');
  });

  it('is a good last word with no exit known: the power went after it', () => {
    expect(short({ lastWord: lastWord(), end: null })).toBe('13 succeeded');
    expect(short({ lastWord: lastWord(), end: end('success unknown') })).toBe('13 succeeded');
  });

  it('is not spoiled by an exit record that could not be written', () => {
    // A failing ExecStopPost makes Result=exit-code although the main process exited 0.
    expect(short({ lastWord: lastWord(), end: end('exit-code exited 0') })).toBe('13 succeeded');
  });

  it('is not spoiled by leftover processes', () => {
    const word = lastWord({ leftovers: [{ pid: 7, name: 'server' }] });
    expect(short({ lastWord: word, end: end('success exited 0') })).toBe('13 succeeded');
  });

  it('X26: is one that failed where it may leave no process behind and did, and they are named', () => {
    const leftovers = Array.from({ length: 12 }, (_, index) => ({ pid: index, name: 'server' }));
    const known = { end: end('success exited 0'), leftoverPolicy: 'fail' } as const;
    const one = lastWord({ leftovers: [{ pid: 7, name: 'server' }] });
    expect(verdict({ ...known, lastWord: one })).toEqual({
      rule: 13,
      outcome: {
        kind: 'failed',
        code: 'leftovers',
        message: 'It ended and left processes behind: server (7)',
      },
    });
    const many = verdict({ ...known, lastWord: lastWord({ leftovers }) });
    expect(many.outcome).toMatchObject({
      message: expect.stringMatching(/server \(9\), 2 more$/) as string,
    });
    expect(short({ ...known, lastWord: lastWord() })).toBe('13 succeeded');
    const word = lastWord({ ...one, verdict: 'error', code: 'model_error' });
    expect(short({ ...known, lastWord: word })).toBe('11 failed model_error');
  });
});

describe('rule 14: exit status 0 without a last word', () => {
  it('is not a success: nobody said that it is done', () => {
    expect(short({ end: end('success exited 0') })).toBe('14 failed runner_no_result');
    expect(short({ opened: null, end: end('success exited 0') })).toBe(
      '14 failed runner_no_result',
    );
  });
});

describe('rule 15: nothing tells', () => {
  it('is lost, never a guess', () => {
    expect(short({ end: null })).toBe('15 lost no_evidence');
    expect(short({ end: end('unknown unknown') })).toBe('15 lost no_evidence');
  });
});
