/** `outlive ps`: what is going on. */
import type { Command } from 'commander';
import type { WorkUnitPage, WorkUnitView } from '../api/schemas.ts';
import type { Client } from '../client/client.ts';
import { dependencyGate } from '../domain/dependencies.ts';
import { EXIT } from '../domain/errors.ts';
import { DRIVER_OWNER } from '../domain/ledger.ts';
import { type Context, example, type Frame } from './context.ts';
import { formatDuration } from './duration.ts';
import { formatCost } from './live-figures.ts';
import { outcomeName } from './outcome-text.ts';
import { sanitizeLine } from './sanitize.ts';
import { table, truncate } from './table.ts';

interface PsOptions {
  readonly all?: boolean;
  readonly json?: boolean;
}

/** Largest page the API gives. */
const PAGE = 1_000;

async function ps({ client, stdout, stderr }: Context, options: PsOptions): Promise<number> {
  const items = await readAll(client, options.all !== true);
  const page: WorkUnitPage = { items, nextCursor: null };
  if (options.json) {
    await stdout.json(page);
    return EXIT.ok;
  }
  if (items.length === 0) {
    const hint = options.all ? '' : ' See what has ended with: outlive ps --all';
    await stderr.line(`Nothing ${options.all ? 'has run yet' : 'is running or waiting'}.${hint}`);
    return EXIT.ok;
  }
  for (const line of psTable(items, Date.now())) await stdout.line(line);
  return EXIT.ok;
}

async function readAll(client: Client, active: boolean): Promise<WorkUnitView[]> {
  const items: WorkUnitView[] = [];
  let cursor: string | null = null;
  do {
    const page: WorkUnitPage = await client.listWorkUnits({
      active,
      limit: PAGE,
      ...(cursor === null ? {} : { cursor }),
    });
    items.push(...(active ? page.items.filter(isOfInterest) : page.items));
    cursor = page.nextCursor;
  } while (cursor !== null);
  return items;
}

/** Set-up and verify commands that outlive starts for itself are shown with --all only. */
function isOfInterest({ runnerId, createdByActor, ownerType }: WorkUnitView): boolean {
  return runnerId !== 'command' || createdByActor === 'user' || ownerType === DRIVER_OWNER;
}

/** What all attempts cost, and what they may: `$0.40/$2.50`. */
function costOf({ spend, live, attempts }: WorkUnitView): string {
  const running = live?.costUsd ?? attempts.at(-1)?.result?.costUsd ?? null;
  const cost = spend.tokens > 0 ? spend.costUsd : running;
  if (spend.maxCostUsd !== null) return `${formatCost(cost ?? 0)}/${formatCost(spend.maxCostUsd)}`;
  return cost === null ? '-' : formatCost(cost);
}

/** The table for a terminal. `now` is milliseconds since the epoch. */
export function psTable(items: readonly WorkUnitView[], now: number): string[] {
  const header = ['HANDLE', 'STATUS', 'RUNNER', 'AGE', 'RAN', 'COST', 'NOW'];
  return table([header, ...items.map((item) => row(item, now))]);
}

/** Which other work a queued one waits for, `after a, b`, or which failed it. */
function awaited({ status, after, afterNeeded }: WorkUnitView): string {
  if (status !== 'queued' || afterNeeded === null) return '';
  const gate = dependencyGate(after, afterNeeded);
  if (gate.kind === 'open') return '';
  const names = (list: Readonly<WorkUnitView['after']>): string =>
    list.map(({ handle }) => handle).join(', ');
  return gate.kind === 'waits'
    ? `after ${names(gate.pending)}`
    : `stuck: failed ${names(gate.failed)}`;
}

function row(item: WorkUnitView, now: number): string[] {
  const since = (time: string, end: string | null): string =>
    formatDuration((end === null ? now : Date.parse(end)) - Date.parse(time));
  const doing = [
    item.errorCode ?? item.live?.currentTool ?? awaited(item),
    item.outcome === null ? '' : outcomeName(item.outcome),
  ]
    .filter((part) => part !== '')
    .join(' ');
  return [
    item.handle,
    item.status,
    item.runnerId,
    since(item.createdAt, null),
    item.startedAt === null ? '-' : since(item.startedAt, item.endedAt),
    costOf(item),
    truncate(sanitizeLine(doing), 40),
  ];
}

/** Adds `ps` to the program. */
export function registerPs(program: Command, frame: Frame): void {
  program
    .command('ps')
    .description('List what runs or waits to run.')
    .option('--all', 'also what has ended, and what outlive runs for itself')
    .option('--json', 'as {"items":[…],"nextCursor":…}')
    .addHelpText('after', example('outlive ps --all'))
    .action((options: PsOptions, command: Command) =>
      frame.run(command, (context) => ps(context, options)),
    );
}
