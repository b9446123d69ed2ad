/** What people are shown of drivers. */
import type { DriverDetail, DriverView } from '../api/schemas-drivers.ts';
import { SKIPS, type TickReport, type TickSubject } from '../domain/driver.ts';
import { formatDuration } from './duration.ts';
import type { Listing } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';
import { table, truncate } from './table.ts';

const MESSAGE_CELLS = 100;

export const stateText = ({ state, failures }: DriverView): string => {
  if (failures === 0) return state;
  return `FAILING${state === 'paused' ? ' (paused)' : ''}`;
};

function lastText({ last, failures }: DriverView): string {
  if (last === null) return '-';
  if (failures > 0) return truncate(sanitizeLine(last.message ?? ''), MESSAGE_CELLS);
  return `${last.started} of ${last.found} started at ${last.endedAt.slice(0, 19)}Z`;
}

const moment = (time: string | null): string => (time === null ? '-' : `${time.slice(0, 19)}Z`);

function nextText({ nextAt, state, underWay }: DriverView): string {
  if (underWay !== null) return 'now';
  return state === 'paused' ? '-' : moment(nextAt);
}

export const DRIVERS: Listing<DriverView> = {
  header: ['DRIVER', 'STATE', 'EVERY', 'NEXT', 'WORKING', 'HELD', 'LAST'],
  row: (driver) => [
    driver.name,
    stateText(driver),
    driver.spec.every === undefined ? '-' : formatDuration(driver.spec.every),
    nextText(driver),
    `${driver.working} of ${driver.spec.maxAtOnce}`,
    String(driver.held),
    lastText(driver),
  ],
  none: 'There is no driver yet. Make one with: outlive driver add NAME --census CMD --run CMD',
};

const whyText = ({ code, message }: TickSubject): string =>
  code === null ? '' : `${code}: ${message ?? SKIPS[code]}`;

/** What a tick came to, line by line. */
export function reportLines(name: string, report: TickReport): string[] {
  if (!report.ok)
    return [`${name}: tick ${report.tick} failed. ${report.message}`].map(sanitizeLine);
  const { tick, started, found, subjects } = report;
  const rows = subjects.map((one) => [
    `  ${one.action}`,
    sanitizeLine(one.subject),
    one.handle,
    sanitizeLine(whyText(one)),
  ]);
  const more = found > subjects.length ? [`  and ${found - subjects.length} more`] : [];
  return [`${name}: tick ${tick} found ${found} and started ${started}`, ...table(rows), ...more];
}

type Field = readonly [name: string, value: string];

function fields(driver: DriverDetail): Field[] {
  const { spec, last } = driver;
  const { argv, prompt, promptFile } = spec.run;
  const what = argv ? argv.join(' ') : (promptFile ?? `prompt: ${prompt}`);
  const every = spec.every === undefined ? 'only by request' : formatDuration(spec.every);
  const { verify, outputs } = spec.outcome ?? {};
  return [
    ['source', driver.source === 'file' ? 'config.json' : 'command line'],
    ['census', spec.census.argv.join(' ')],
    ['every', every],
    ['next', nextText(driver)],
    ['run', what],
    ['cwd', spec.cwd ?? '-'],
    ...(verify ? ([['verify', verify.argv.join(' ')]] satisfies Field[]) : []),
    ...(outputs ? ([['outputs', outputs.join(', ')]] satisfies Field[]) : []),
    ['limits', `${formatDuration(spec.hardTimeoutMs)} each, ${spec.maxAtOnce} at once`],
    ['last tick', last === null ? '-' : `${last.tick}, ended ${moment(last.endedAt)}`],
  ];
}

/** All of one driver, line by line. */
export function detailLines(driver: DriverDetail): string[] {
  const { name, subjects, holds, last, failures } = driver;
  const shown = subjects.map((work) => [
    `  ${sanitizeLine(work.subject)}`,
    work.handle,
    work.errorCode === null ? work.status : `${work.status} (${work.errorCode})`,
    work.outcome ?? '-',
  ]);
  const held = holds.map((hold) => [
    `  ${sanitizeLine(hold.subject)}`,
    hold.code,
    moment(hold.heldAt),
  ]);
  const count = failures > 1 ? ` ${failures} times in a row` : '';
  return [
    `${name}  ${stateText(driver)}${count}`,
    ...table(fields(driver).map(([field, value]) => [`  ${field}`, sanitizeLine(value)])),
    ...(last === null ? [] : reportLines(name, last)),
    ...(held.length === 0 ? [] : ['held until they are resumed:', ...table(held)]),
    ...(shown.length === 0 ? [] : ['newest work:', ...table(shown)]),
  ];
}
