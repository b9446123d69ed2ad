/** `outlive reconcile`: look afresh at one work unit or at all. */
import type { Command } from 'commander';
import type { ReconcileView } from '../api/schemas-runtime.ts';
import { type Context, example, type Frame } from './context.ts';
import { type JsonOption, type Listing, printList } from './listing.ts';

type Item = ReconcileView['items'][number];

const SAID: Readonly<Record<Item['action'], string>> = {
  looked: 'its unit was read',
  taken_up: 'nobody watched it, somebody does now',
  nothing_runs: 'it has no attempt under way',
};

const REPORT: Listing<Item> = {
  header: ['HANDLE', 'BEFORE', 'AFTER', 'UNIT', 'WHAT WAS DONE'],
  row: ({ handle, before, after, unit, action }) => [
    handle,
    before,
    after,
    unit ?? '-',
    SAID[action],
  ],
  none: 'Nothing is active, so there is nothing to reconcile.',
};

async function reconcile(
  context: Context,
  handle: string | undefined,
  options: JsonOption,
): Promise<number> {
  const { client } = context;
  const report = await (handle === undefined
    ? client.reconcileAll()
    : client.reconcileWorkUnit(handle));
  return printList(context, report, options, REPORT);
}

/** Adds `reconcile` to the program. */
export function registerReconcile(program: Command, frame: Frame): void {
  program
    .command('reconcile')
    .description('Read the units afresh, of one work unit or of all, and act on what is found.')
    .argument('[handle]', 'its handle or id (default: all active work)')
    .option('--json', 'the report as JSON')
    .addHelpText('after', example('outlive reconcile issue42'))
    .action((handle: string | undefined, options: JsonOption, command: Command) =>
      frame.run(command, (context) => reconcile(context, handle, options)),
    );
}
