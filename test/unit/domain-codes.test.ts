import { describe, expect, it } from 'vitest';
import { ERRORS, EXIT, OutliveError } from '../../src/domain/errors.ts';
import {
  DAEMON_EVENT_TYPES,
  EVENT_TYPES,
  PROGRESS_EVENT_TYPES,
  SPOOL_EVENT_TYPES,
  TERMINAL_EVENT_TYPES,
} from '../../src/domain/events.ts';
import {
  CANCELLATIONS,
  describeOutcome,
  FAILURES,
  isFailureCode,
  LOSSES,
  type OutcomeCode,
} from '../../src/domain/outcome-codes.ts';
import { startWorkUnitSchema } from '../../src/domain/request.ts';

describe('the table of errors', () => {
  it.each(Object.entries(ERRORS))('%s has a status, an exit code and a title', (_code, row) => {
    expect(row.status).toBeGreaterThanOrEqual(400);
    expect(row.status).toBeLessThan(600);
    expect(Object.values(EXIT)).toContain(row.exit);
    expect(row.exit).not.toBe(EXIT.ok);
    expect(row.title).toMatch(/^\p{L}.*[^.]$/u);
  });

  it('gives what is missing exit code 3, a conflict 5, a daemon out of reach 4', () => {
    const exits = (status: number) =>
      new Set(
        Object.values(ERRORS)
          .filter((row) => row.status === status)
          .map(({ exit }) => exit),
      );
    expect(exits(404)).toEqual(new Set([EXIT.notFound]));
    expect(exits(409)).toEqual(new Set([EXIT.conflict]));
    expect(exits(503)).toEqual(new Set([EXIT.unreachable]));
  });

  it('is behind every error, which also carries fields, facts and cause', () => {
    const cause = new Error('why');
    const error = new OutliveError('handle_taken', 'what to do', {
      fields: [{ path: '/handle', message: 'taken' }],
      extra: { workUnitId: 'w' },
      cause,
    });
    expect(error).toMatchObject({
      name: 'OutliveError',
      code: 'handle_taken',
      message: 'what to do',
      status: 409,
      exit: 5,
      title: 'A live work unit has this handle',
      fields: [{ path: '/handle', message: 'taken' }],
      extra: { workUnitId: 'w' },
      cause,
    });
    expect('cause' in new OutliveError('internal', 'x')).toBe(false);
  });
});

describe('the codes of an end', () => {
  const codes = [FAILURES, CANCELLATIONS, LOSSES].flatMap((table) => Object.keys(table));

  it('are each in one table only, so that a code says which kind of end it was', () => {
    expect(new Set(codes).size).toBe(codes.length);
  });

  it.each(codes)('%s has a sentence', (code) => {
    expect(describeOutcome(code as OutcomeCode)).toMatch(/^\p{L}.* .*[^.]$/u);
  });

  it('are known by themselves, not by what every object has', () => {
    expect(isFailureCode('oom')).toBe(true);
    for (const code of ['toString', '__proto__', 'constructor', 'halted', '']) {
      expect(isFailureCode(code), code).toBe(false);
    }
  });
});

describe('the types of events', () => {
  it('are named once', () => {
    expect(new Set(EVENT_TYPES).size).toBe(DAEMON_EVENT_TYPES.length + SPOOL_EVENT_TYPES.length);
  });

  it('rows 190-192: have the families of the checklist', () => {
    const ends = ['created', 'queued', 'claimed', 'started', 'heartbeat', 'progress'];
    const more = ['approval_requested', 'cancelling', 'succeeded', 'failed', 'cancelled', 'stale'];
    expect(DAEMON_EVENT_TYPES).toEqual(
      expect.arrayContaining([
        ...[...ends, ...more].map((end) => `work_unit.${end}`),
        ...['lease.acquired', 'lease.renewed', 'lease.released'],
        ...['semaphore.acquired', 'semaphore.released'],
        ...['artifact.created', 'diagnostic.stuck_detected'],
      ]),
    );
  });

  it('row 102: count no heartbeat as progress, and nothing that the daemon says', () => {
    for (const type of PROGRESS_EVENT_TYPES) {
      expect(SPOOL_EVENT_TYPES as readonly string[]).toContain(type);
      expect(type).not.toContain('heartbeat');
    }
  });

  it('end a stream only with the three final states', () => {
    expect([...TERMINAL_EVENT_TYPES].sort()).toEqual([
      'work_unit.cancelled',
      'work_unit.failed',
      'work_unit.succeeded',
    ]);
  });
});

describe('the request', () => {
  it('has its defaults', () => {
    expect(
      startWorkUnitSchema.parse({ runnerId: 'command', ownerId: 'ada', argv: ['true'] }),
    ).toEqual({
      runnerId: 'command',
      ownerId: 'ada',
      argv: ['true'],
      kind: 'task_run',
      ownerType: 'user',
      priority: 0,
      queueOnConflict: true,
      leases: [],
    });
  });

  it('takes a prompt only for Pi and an argv only for a command', () => {
    const both = { ownerId: 'ada', argv: ['true'], prompt: 'p' };
    for (const runnerId of ['pi', 'command']) {
      expect(startWorkUnitSchema.safeParse({ ...both, runnerId }).success).toBe(false);
    }
  });

  it('may hand an empty argument to a program', () => {
    const request = { runnerId: 'command', ownerId: 'ada', argv: ['echo', ''] };
    expect(startWorkUnitSchema.safeParse(request).success).toBe(true);
  });
});
