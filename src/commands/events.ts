/** `outlive events`: the durable events of one work unit, in order. */
import type { Command } from 'commander';
import type { EventView } from '../api/schemas.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { type Context, example, type Frame } from './context.ts';
import { summaryOf } from './event-notes.ts';
import { eventSource } from './event-source.ts';
import { truncate } from './table.ts';

interface EventsOptions {
  readonly follow?: boolean;
  readonly after?: string;
  readonly json?: boolean;
}

async function events(context: Context, handle: string, options: EventsOptions): Promise<number> {
  const { stdout } = context;
  const afterSeq = parseSeq(options.after ?? '0');
  for await (const event of eventSource(context, handle, { afterSeq, follow: options.follow })) {
    if (options.json) await stdout.json(event);
    else await stdout.line(eventLine(event, stdout.isTerminal ? stdout.columns : null));
  }
  return EXIT.ok;
}

function parseSeq(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new OutliveError('usage', `--after "${text}" is not a sequence number, as in --after 120.`);
}

/** `   12  20:37:42.766  tool.start  bash: npm test`; `columns` null means as long as it is. */
export function eventLine(event: EventView, columns: number | null): string {
  const time = event.ts.slice(11, 23);
  const head = `${String(event.seq).padStart(5)}  ${time}  ${event.type.padEnd(22)}`;
  const line = `${head}  ${summaryOf(event)}`.trimEnd();
  return columns === null ? line : truncate(line, columns);
}

/** Adds `events` to the program. */
export function registerEvents(program: Command, frame: Frame): void {
  program
    .command('events')
    .description('Print the events of one work unit, from the first to the last.')
    .argument('<handle>', 'its handle or id')
    .option('--follow', 'go on until it ends; survives restarts of the daemon')
    .option('--after <seq>', 'only what comes after this sequence number')
    .option('--json', 'NDJSON, one event per line')
    .addHelpText('after', example('outlive events issue42 --follow --json'))
    .action((handle: string, options: EventsOptions, command: Command) =>
      frame.run(command, (context) => events(context, handle, options)),
    );
}
