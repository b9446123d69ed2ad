/** `outlive ledger`: one line for each attempt that has ended. */
import type { Command } from 'commander';
import type { LedgerLineView, LedgerQuery } from '../api/schemas-ledger.ts';
import type { Client } from '../client/client.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { formatMicroUsd, toMicroUsd } from '../domain/spend.ts';
import { type Context, example, type Frame } from './context.ts';
import { formatDuration, parseDuration } from './duration.ts';
import { type Listing, printList } from './listing.ts';

interface LedgerOptions {
  readonly since?: string;
  readonly driver?: string;
  readonly handle?: string;
  readonly limit?: string;
  readonly all?: boolean;
  readonly json?: boolean;
}

const TABLE_LINES = 50;
const PAGE_LINES = 1_000;

const took = ({ startedAt, endedAt }: LedgerLineView): string =>
  startedAt === null ? '-' : formatDuration(Date.parse(endedAt) - Date.parse(startedAt));

const LINES: Listing<LedgerLineView> = {
  header: ['ENDED', 'HANDLE', 'RESULT', 'RC', 'OUTCOME', 'VERIFY', 'TOOK', 'COST', 'UNIT'],
  row: (line) => [
    `${line.endedAt.slice(0, 19)}Z`,
    line.handle,
    line.reattached ? `${line.result} (re-attached)` : line.result,
    line.rc === null ? '-' : String(line.rc),
    line.outcome ?? '-',
    line.verify ?? '-',
    took(line),
    line.costUsd === null ? '-' : formatMicroUsd(toMicroUsd(line.costUsd)),
    line.unit,
  ],
  none: 'Nothing of this has ended yet.',
};

// A day or a moment with its zone; Date.parse alone would also take `1` and local times.
const MOMENT = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2}))?$/;

/** RFC 3339 of a moment, or of as long ago as a duration says. @throws OutliveError `usage`. */
function parseSince(text: string, now: number): string {
  if (/^\d{4}-/.test(text)) {
    const at = MOMENT.test(text) ? Date.parse(text) : Number.NaN;
    if (!Number.isNaN(at)) return new Date(at).toISOString();
  } else {
    const at = new Date(now - parseDuration(text));
    if (!Number.isNaN(at.getTime()) && at.getTime() >= 0) return at.toISOString();
  }
  throw new OutliveError(
    'usage',
    `--since "${text}" is neither a duration, as 24h, nor a moment, as 2026-11-30 or 2026-11-30T09:00:00Z.`,
  );
}

function parseLimit(text: string): number {
  if (/^\d{1,9}$/.test(text) && Number(text) > 0) return Number(text);
  throw new OutliveError('usage', `--limit "${text}" is not a number of lines, as in --limit 20.`);
}

/** Lines page by page, at most `limit` of them. */
async function* lines(
  client: Client,
  query: LedgerQuery,
  limit: number,
): AsyncGenerator<LedgerLineView, void> {
  let left = limit;
  for (let cursor: string | null | undefined; cursor !== null && left > 0; ) {
    const page = await client.ledger({
      ...query,
      limit: Math.min(left, PAGE_LINES),
      cursor: cursor ?? undefined,
    });
    yield* page.items;
    left -= page.items.length;
    cursor = page.nextCursor;
  }
}

async function gathered<Item>(items: AsyncGenerator<Item, void>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** Oldest first, as a file that is appended to; of a limited number the newest. */
async function exportLines(
  { client, stdout }: Context,
  query: LedgerQuery,
  limit: number | null,
): Promise<number> {
  if (limit === null) {
    const all = lines(client, { ...query, order: 'oldest' }, Number.POSITIVE_INFINITY);
    for await (const line of all) await stdout.json(line);
    return EXIT.ok;
  }
  const newest = await gathered(lines(client, query, limit));
  for (const line of newest.reverse()) await stdout.json(line);
  return EXIT.ok;
}

async function ledger(context: Context, options: LedgerOptions): Promise<number> {
  const { since, driver, handle, all, json } = options;
  const limit = options.limit === undefined ? null : parseLimit(options.limit);
  const query: LedgerQuery = {
    driver,
    handle,
    all,
    since: since === undefined ? undefined : parseSince(since, Date.now()),
  };
  if (json) return exportLines(context, query, limit);
  const wanted = limit ?? TABLE_LINES;
  // One more than is shown tells whether there is more.
  const found = await gathered(lines(context.client, query, wanted + 1));
  const page = { items: found.slice(0, wanted), nextCursor: null };
  const status = await printList(context, page, {}, LINES);
  if (found.length > wanted) {
    await context.stderr.line(`Older ones are left out; --limit shows more, --json all.`);
  }
  return status;
}

/** Adds `ledger` to the program. */
export function registerLedger(program: Command, frame: Frame): void {
  program
    .command('ledger')
    .description('List attempts that have ended, one line each: result, exit status, outcome.')
    .option('--since <time>', 'only what ended since: 24h, 2026-11-30, 2026-11-30T09:00:00Z')
    .option('--driver <name>', 'only what this driver had done')
    .option('--handle <handle>', 'only attempts of this handle')
    .option('--limit <n>', `the newest so many (default: ${TABLE_LINES}; with --json all)`)
    .option('--all', 'also what outlive runs for itself: censuses, verifications, set-up')
    .option('--json', 'NDJSON, one attempt per line, oldest first')
    .addHelpText('after', example('outlive ledger --since 24h --json'))
    .action((options: LedgerOptions, command: Command) =>
      frame.run(command, (context) => ledger(context, options)),
    );
}
