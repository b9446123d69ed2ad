/** `outlive ledger` as a process, against a daemon that answers by script. */
import { afterEach, describe, expect, it } from 'vitest';
import type { LedgerLineView } from '../../src/api/schemas-ledger.ts';
import { FakeDaemon, json, problem, WORK_UNIT_ID } from './fake-daemon.ts';
import { type Ended, outlive } from './outlive.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

const aLine = (n: number, changes: Partial<LedgerLineView> = {}): LedgerLineView => ({
  handle: `issue${n}`,
  workUnitId: WORK_UNIT_ID,
  attemptId: `01a22907-87b6-7000-8000-${String(n).padStart(12, '0')}`,
  attemptNumber: 1,
  driver: null,
  subject: null,
  unit: `outlive-main-issue${n}-1.service`,
  invocationId: null,
  executor: 'systemd',
  startedAt: new Date(Date.UTC(2026, 10, 29, 20, 0, n)).toISOString(),
  endedAt: new Date(Date.UTC(2026, 10, 29, 20, 1, n)).toISOString(),
  result: 'exit',
  rc: 0,
  outcome: null,
  verify: null,
  reattached: false,
  costUsd: null,
  leftovers: 0,
  createdByActor: 'user',
  ...changes,
});

/** A daemon with these lines, oldest first, and at most `most` of them a page. */
async function serve(lines: readonly LedgerLineView[], most = 1_000): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon(({ url }, response) => {
    const query = url.searchParams;
    const ordered = query.get('order') === 'oldest' ? lines : lines.toReversed();
    const from = ordered.findIndex(({ attemptId }) => attemptId === query.get('cursor')) + 1;
    const items = ordered.slice(from, from + Math.min(most, Number(query.get('limit') ?? 100)));
    const more = from + items.length < ordered.length;
    const nextCursor = more ? (items.at(-1)?.attemptId ?? null) : null;
    json(response, 200, { items, nextCursor });
  }).listen();
  open.push(daemon);
  return daemon;
}

const ledger = ({ runtimeDirectory }: FakeDaemon, ...args: string[]): Promise<Ended> =>
  outlive(['ledger', ...args], { runtimeDirectory });
const asked = (daemon: FakeDaemon): Record<string, string> =>
  Object.fromEntries(daemon.requests[0]?.url.searchParams ?? []);
const parsed = ({ stdout }: Ended): LedgerLineView[] =>
  stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as LedgerLineView);
const many = (count: number): LedgerLineView[] =>
  Array.from({ length: count }, (_, index) => aLine(index + 1));

describe('the table', () => {
  it('has a row for each line, newest first, and no colour', async () => {
    const daemon = await serve([
      aLine(1, { result: 'timeout', rc: 124, outcome: 'skipped(timed_out)', verify: 'skipped' }),
      aLine(2, { reattached: true, costUsd: 0.25, outcome: 'satisfied', verify: 'ok' }),
      aLine(3, { result: 'lost', rc: null, startedAt: null }),
    ]);
    const { code, stdout, stderr } = await ledger(daemon);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['ENDED', 'HANDLE', 'RESULT', 'RC', 'OUTCOME', 'VERIFY', 'TOOK', 'COST', 'UNIT'],
      [
        '2026-11-29T20:01:03Z',
        'issue3',
        'lost',
        '-',
        '-',
        '-',
        '-',
        '-',
        'outlive-main-issue3-1.service',
      ],
      [
        '2026-11-29T20:01:02Z',
        'issue2',
        'exit (re-attached)',
        '0',
        'satisfied',
        'ok',
        '1m',
        '$0.25',
        'outlive-main-issue2-1.service',
      ],
      [
        '2026-11-29T20:01:01Z',
        'issue1',
        'timeout',
        '124',
        'skipped(timed_out)',
        'skipped',
        '1m',
        '-',
        'outlive-main-issue1-1.service',
      ],
      [''],
    ]);
    expect(stdout).not.toContain('\u001b');
  });

  it('shows the newest 50, or as many as are asked for, and says that there are more', async () => {
    const daemon = await serve(many(60), 7);
    const all = await ledger(daemon);
    expect(all.stdout.split('\n')).toHaveLength(1 + 50 + 1);
    expect(all.stderr).toBe('Older ones are left out; --limit shows more, --json all.\n');
    const two = await ledger(daemon, '--limit', '2');
    expect(two.stdout.match(/issue\d+ /g)).toEqual(['issue60 ', 'issue59 ']);
    expect((await ledger(daemon, '--limit', '60')).stderr).toBe('');
  });

  it('is not printed where there is nothing: stderr says so', async () => {
    const { code, stdout, stderr } = await ledger(await serve([]));
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Nothing of this has ended yet.\n',
    });
  });
});

describe('--json', () => {
  it('is one document a line, oldest first, over all pages', async () => {
    const daemon = await serve(many(25), 10);
    const ended = await ledger(daemon, '--json');
    expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(parsed(ended)).toEqual(many(25));
    expect(daemon.requests).toHaveLength(3);
  });

  it('with --limit is the newest of them, still oldest first', async () => {
    const ended = await ledger(await serve(many(25), 10), '--json', '--limit', '12');
    expect(parsed(ended)).toEqual(many(25).slice(-12));
  });

  it('prints nothing at all where there is nothing', async () => {
    const { code, stdout, stderr } = await ledger(await serve([]), '--json');
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: '', stderr: '' });
  });
});

describe('options', () => {
  it('are asked of the daemon', async () => {
    const daemon = await serve([]);
    const args = ['--driver', 'nightly', '--handle', 'issue42', '--all', '--limit', '3'];
    await ledger(daemon, ...args, '--since', '2026-11-29T21:00:00+01:00');
    expect(asked(daemon)).toEqual({
      driver: 'nightly',
      handle: 'issue42',
      all: 'true',
      limit: '4',
      since: '2026-11-29T20:00:00.000Z',
    });
  });

  it('--since takes a day, and how long ago', async () => {
    const day = await serve([]);
    await ledger(day, '--since', '2026-11-29');
    expect(asked(day)).toMatchObject({ since: '2026-11-29T00:00:00.000Z' });
    const ago = await serve([]);
    const before = Date.now();
    await ledger(ago, '--since', '24h', '--json');
    const since = Date.parse(asked(ago)['since'] ?? '') + 86_400_000;
    expect(since).toBeGreaterThanOrEqual(before);
    expect(since).toBeLessThanOrEqual(Date.now());
  });

  it.each([
    [['--since', 'yesterday']],
    [['--since', '24']],
    [['--since', '2026-13-01']],
    [['--since', '2026-11-29T21:00:00']],
    [['--since', '99999999999d']],
    [['--limit', '0']],
    [['--limit', 'many']],
    [['issue42']],
  ])('%j is a usage error, and nobody is asked', async (args) => {
    const daemon = await serve([]);
    const { code, stdout, stderr } = await ledger(daemon, ...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^outlive: /);
    expect(daemon.requests).toEqual([]);
  });

  it('a refusal of the daemon is told on stderr', async () => {
    const daemon = await serve([]);
    daemon.handle((_, response) => problem(response, 'store_damaged', 'It is damaged.'));
    const { code, stdout, stderr } = await ledger(daemon, '--json');
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
    expect(stderr).toContain('It is damaged.');
  });

  it('have a help with an example, and are completed', async () => {
    const { code, stdout } = await outlive(['ledger', '--help']);
    expect(code).toBe(0);
    expect(stdout).toContain('Usage: outlive ledger');
    expect(stdout).toMatch(/Example:\n {2}outlive ledger\b/);
    const completion = await outlive(['completion', 'fish']);
    expect(completion.stdout).toContain('ledger');
  });
});
