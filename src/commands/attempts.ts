/** `outlive attempts`: every execution of one work unit. */
import type { Command } from 'commander';
import type { AttemptView } from '../api/schemas.ts';
import { example, type Frame } from './context.ts';
import { formatDuration } from './duration.ts';
import { JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';

function ran({ startedAt, endedAt }: AttemptView, now: number): string {
  if (startedAt === null) return '-';
  const end = endedAt === null ? now : Date.parse(endedAt);
  return formatDuration(end - Date.parse(startedAt));
}

const ATTEMPTS: Listing<AttemptView> = {
  header: ['N', 'STATUS', 'WHY', 'RULE', 'RAN', 'REATTACHED', 'UNIT', 'ID'],
  row: (attempt) => [
    String(attempt.attemptNumber),
    attempt.status,
    attempt.errorCode ?? '-',
    attempt.decidedByRule === null ? '-' : String(attempt.decidedByRule),
    ran(attempt, Date.now()),
    String(attempt.reattached),
    attempt.unit,
    attempt.id,
  ],
  none: 'It was not attempted yet.',
};

/** Adds `attempts` to the program. */
export function registerAttempts(program: Command, frame: Frame): void {
  program
    .command('attempts')
    .description('List the attempts of one work unit.')
    .argument('<handle>', 'its handle or id')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive attempts issue42'))
    .action((handle: string, options: JsonOption, command: Command) =>
      frame.run(command, async (context) => {
        const { attempts } = await context.client.getWorkUnit(handle);
        return printList(context, { items: attempts, nextCursor: null }, options, ATTEMPTS);
      }),
    );
}
