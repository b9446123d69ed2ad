/** `outlive active` and `outlive stuck`: what is being worked on, and what of it needs a look. */
import type { Command } from 'commander';
import type { ActiveView, StuckView } from '../api/schemas-runtime.ts';
import { example, type Frame } from './context.ts';
import { ageText, JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';

const holds = ({ leases, slots }: ActiveView): string => [...leases, ...slots].join(', ') || '-';

const ACTIVE: Listing<ActiveView> = {
  header: ['HANDLE', 'STATUS', 'RUNNER', 'PROVIDER', 'OWNER', 'AGE', 'EVENT', 'HEARTBEAT', 'HOLDS'],
  row: (item) => [
    item.handle,
    item.status,
    item.runnerId,
    item.providerPresetId ?? '-',
    `${item.ownerType} ${item.ownerId}`,
    ageText(item.ageMs),
    ageText(item.lastEventAgeMs),
    ageText(item.lastHeartbeatAgeMs),
    holds(item),
  ],
  none: 'Nothing is being worked on.',
};

function remedies({ canCancel, canRetry, status }: StuckView): string {
  const verbs = [
    ...(canCancel ? ['cancel'] : []),
    ...(canRetry ? ['retry'] : []),
    ...(status === 'stale' || status === 'cancelling' ? ['reconcile'] : []),
  ];
  return verbs.join(', ') || '-';
}

const STUCK: Listing<StuckView> = {
  header: ['HANDLE', 'STATUS', 'WHY', 'EVENT', 'HEARTBEAT', 'TRY', 'REASON'],
  row: (item) => [
    item.handle,
    item.status,
    item.why,
    ageText(item.lastEventAgeMs),
    ageText(item.lastHeartbeatAgeMs),
    remedies(item),
    item.reason,
  ],
  none: 'Nothing is stuck.',
};

/** Adds `active` to the program. */
export function registerActive(program: Command, frame: Frame): void {
  program
    .command('active')
    .description('List what is being worked on, with ages and what it holds.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive active'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.active(), options, ACTIVE),
      ),
    );
}

/** Adds `stuck` to the program. */
export function registerStuck(program: Command, frame: Frame): void {
  program
    .command('stuck')
    .description('List work that is silent, stale or slow to end, and what can be done.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive stuck'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.stuck(), options, STUCK),
      ),
    );
}
