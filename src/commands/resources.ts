/** `outlive leases` and `outlive slots`: who holds what. */
import type { Command } from 'commander';
import type { LeaseView, SemaphoreView } from '../api/schemas-runtime.ts';
import { example, type Frame } from './context.ts';
import { ageText, JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';

const LEASES: Listing<LeaseView> = {
  header: ['TYPE', 'KEY', 'HANDLE', 'HELD', 'STATUS'],
  row: (lease) => [
    lease.resourceType,
    lease.resourceKey,
    lease.handle,
    ageText(lease.heldMs),
    lease.expired ? `${lease.status}, not renewed in time` : lease.status,
  ],
  none: 'No lease is held.',
};

const SLOTS: Listing<SemaphoreView> = {
  header: ['TYPE', 'KEY', 'USED', 'LIMIT', 'HANDLES'],
  row: ({ resourceType, resourceKey, used, limit, holders }) => [
    resourceType,
    resourceKey,
    String(used),
    limit === null ? 'none' : String(limit),
    holders.map(({ handle }) => handle).join(', ') || '-',
  ],
  none: 'No slot is limited or taken.',
};

/** Adds `leases` to the program. */
export function registerLeases(program: Command, frame: Frame): void {
  program
    .command('leases')
    .description('List what is held exclusively, and by whom.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive leases'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.leases(), options, LEASES),
      ),
    );
}

/** Adds `slots` to the program. */
export function registerSlots(program: Command, frame: Frame): void {
  program
    .command('slots')
    .description('List counted resources: how many are taken, of how many, by whom.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive slots'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.semaphores(), options, SLOTS),
      ),
    );
}
