/** `outlive show`: all there is to know about one work unit. */
import type { Command } from 'commander';
import type { AttemptView, WorkUnitView } from '../api/schemas.ts';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame } from './context.ts';
import { formatDuration } from './duration.ts';
import { formatCost } from './live-figures.ts';
import { outcomeLine, outcomeText } from './outcome-text.ts';
import { spendText } from './providers.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

interface ShowOptions {
  readonly json?: boolean;
}

async function show(
  { client, stdout }: Context,
  handle: string,
  options: ShowOptions,
): Promise<number> {
  const workUnit = await client.getWorkUnit(handle);
  if (options.json) await stdout.json(workUnit);
  else for (const line of showLines(workUnit)) await stdout.line(line);
  return EXIT.ok;
}

/** The human form, line by line. */
export function showLines(workUnit: WorkUnitView): string[] {
  const fields = [...identity(workUnit), ...progress(workUnit), ...outcome(workUnit)];
  return [
    `${workUnit.handle}  ${workUnit.status}`,
    ...table(fields.map(([name, value]) => [`  ${name}`, sanitizeLine(value)])),
    ...attempts(workUnit.attempts),
  ];
}

type Field = readonly [name: string, value: string];

function identity(workUnit: WorkUnitView): Field[] {
  const { createdByActor, createdByClientId, ownerId } = workUnit;
  const by =
    createdByClientId === null ? createdByActor : `${createdByActor}, ${createdByClientId}`;
  return [
    ['id', workUnit.id],
    ['kind', workUnit.kind],
    ['runner', workUnit.runnerId],
    ...(workUnit.model === null ? [] : ([['model', workUnit.model]] satisfies Field[])),
    ['cwd', workUnit.cwd],
    ['owner', `${workUnit.ownerType} ${ownerId} (created by ${by})`],
  ];
}

function progress(workUnit: WorkUnitView): Field[] {
  const { startedAt, endedAt, live } = workUnit;
  const optional = (name: string, value: string | null): Field[] =>
    value === null ? [] : [[name, value]];
  return [
    ['created', workUnit.createdAt],
    ...optional('started', startedAt),
    ...afterField(workUnit),
    ...optional('last event', workUnit.lastEventAt),
    ...optional('ended', endedAt),
    [
      'limits',
      `${formatDuration(workUnit.hardTimeoutMs)} in all, ${formatDuration(workUnit.idleTimeoutMs)} without progress`,
    ],
    ...optional('now', live?.currentTool ?? null),
    ['spent', spendText(workUnit.spend)],
  ];
}

function afterField({ after, afterNeeded }: WorkUnitView): Field[] {
  if (afterNeeded === null) return [];
  const some = afterNeeded < after.length ? `${afterNeeded} of ` : '';
  const list = after.map(({ handle, state }) => `${handle} (${state})`);
  return [['after', `${some}${list.join(', ')}`]];
}

function outcome({ errorCode, errorMessage, outcome: left }: WorkUnitView): Field[] {
  const why: Field[] = errorCode === null ? [] : [['why', outcomeText(errorCode, errorMessage)]];
  if (left === null) return why;
  return [
    ...why,
    ['outcome', outcomeLine(left)],
    ...(left.verify === null ? [] : ([['verified by', left.verify]] satisfies Field[])),
    ...(left.result === null ? [] : ([['result', JSON.stringify(left.result)]] satisfies Field[])),
  ];
}

function attempts(list: readonly AttemptView[]): string[] {
  const newest = list.at(-1);
  if (!newest) return [];
  const header = ['  ATTEMPT', 'STATUS', 'UNIT', 'EXIT', 'RE-ATTACHED', 'COST'];
  return ['', ...table([header, ...list.map(attemptRow)]), '', ...lookYourself(newest)];
}

function attemptRow(attempt: AttemptView): string[] {
  const { exit, result } = attempt;
  const how = exit === null ? '-' : `${exit.exitCode ?? '?'} ${exit.exitStatus ?? '?'}`;
  const cost = result?.costUsd == null ? '-' : formatCost(result.costUsd);
  return [
    `  ${attempt.attemptNumber}`,
    attempt.status,
    attempt.unit,
    how,
    `${attempt.reattached}×`,
    cost,
  ].map(sanitizeKeepingIndent);
}

const sanitizeKeepingIndent = (cell: string): string =>
  cell.startsWith('  ') ? `  ${sanitizeLine(cell)}` : sanitizeLine(cell);

function lookYourself({ executor, unit, invocationId }: AttemptView): string[] {
  if (executor !== 'systemd') return [];
  const journal = invocationId === null ? `-u ${unit}` : `_SYSTEMD_INVOCATION_ID=${invocationId}`;
  return ['Look yourself:', `  systemctl --user status ${unit}`, `  journalctl --user ${journal}`];
}

/** Adds `show` to the program. */
export function registerShow(program: Command, frame: Frame): void {
  program
    .command('show')
    .description('Show one work unit: state, limits, attempts, outcome.')
    .argument('<handle>', 'its handle or id')
    .option('--json', 'the work unit as JSON')
    .addHelpText('after', example('outlive show issue42'))
    .action((handle: string, options: ShowOptions, command: Command) =>
      frame.run(command, (context) => show(context, handle, options)),
    );
}
