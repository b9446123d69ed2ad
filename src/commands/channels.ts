/** `outlive channels`: lanes of work and their policies. */
import { type Command, Option } from 'commander';
import type { ChannelPolicyInput, ChannelView } from '../api/schemas-runtime.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { SUBJECT_POLICIES } from '../domain/resources.ts';
import { type Context, example, type Frame } from './context.ts';
import { JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';
import { spendText } from './providers.ts';
import { parseMoney, parseTokens } from './run-input.ts';
import { sanitizeLine } from './sanitize.ts';

interface SetOptions extends JsonOption {
  readonly maxCostPerDay?: string;
  readonly maxTokensPerDay?: string;
  readonly maxConcurrentRuns?: string;
  readonly onNewer?: ChannelPolicyInput['onNewerSubject'];
}

const CHANNELS: Listing<ChannelView> = {
  header: ['CHANNEL', 'STATUS', 'RUNNING', 'LIMIT', 'QUEUED', 'ON NEWER', 'SPENT TODAY'],
  row: ({ id, status, running, maxConcurrentRuns, queued, onNewerSubject, spend }) => [
    id,
    status,
    String(running),
    String(maxConcurrentRuns),
    String(queued),
    onNewerSubject,
    spendText(spend),
  ],
  none: 'There is no channel yet. The first work in one makes it, or: outlive channels set ID',
};

async function put(
  { client, stdout, stderr }: Context,
  id: string,
  policy: ChannelPolicyInput,
  { json }: JsonOption,
): Promise<number> {
  const channel = await client.putChannel(id, policy);
  if (json) await stdout.json(channel);
  else {
    const { status, maxConcurrentRuns, onNewerSubject } = channel;
    await stderr.line(
      sanitizeLine(
        `${id} is ${status}, runs ${maxConcurrentRuns} at once, on newer work on a subject: ${onNewerSubject}.`,
      ),
    );
  }
  return EXIT.ok;
}

/** Only of a channel there is: a typo is not to make one. */
async function change(
  context: Context,
  id: string,
  status: ChannelView['status'],
  options: JsonOption,
): Promise<number> {
  await context.client.getChannel(id);
  return put(context, id, { status }, options);
}

function policyOf(options: SetOptions): ChannelPolicyInput {
  const { maxConcurrentRuns, onNewer, maxCostPerDay, maxTokensPerDay } = options;
  if (maxConcurrentRuns !== undefined && !/^[1-9]\d{0,3}$/.test(maxConcurrentRuns)) {
    throw new OutliveError(
      'usage',
      `--max-concurrent-runs "${maxConcurrentRuns}" is not a number from 1 to 1000.`,
    );
  }
  return {
    ...(maxConcurrentRuns === undefined ? {} : { maxConcurrentRuns: Number(maxConcurrentRuns) }),
    ...(onNewer === undefined ? {} : { onNewerSubject: onNewer }),
    ...(maxCostPerDay === undefined
      ? {}
      : { maxCostUsdPerDay: orNone(maxCostPerDay, '--max-cost-per-day', parseMoney) }),
    ...(maxTokensPerDay === undefined
      ? {}
      : { maxTokensPerDay: orNone(maxTokensPerDay, '--max-tokens-per-day', parseTokens) }),
  };
}

/** A ceiling, or `none` to take one away. */
const orNone = (
  text: string,
  option: string,
  parse: (text: string, option: string) => number,
): number | null => (text === 'none' ? null : parse(text, option));

const VERBS = [
  ['pause', 'paused', 'Refuse new work in a channel and hold what is queued, until resumed.'],
  ['resume', 'active', 'Take work in a channel again.'],
  ['archive', 'archived', 'Close a channel for good.'],
] as const;

/** Adds `channels` to the program. */
export function registerChannels(program: Command, frame: Frame): void {
  const channels = program
    .command('channels')
    .description('List channels, or change the policy of one.')
    .addHelpText('after', example('outlive channels set linear-eng --max-concurrent-runs 2'));
  channels
    .command('list', { isDefault: true })
    .description('List all channels.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive channels list'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.listChannels(), options, CHANNELS),
      ),
    );
  for (const [verb, status, description] of VERBS) {
    channels
      .command(verb)
      .description(description)
      .argument('<id>', 'the channel')
      .option('--json', 'the channel as JSON')
      .addHelpText('after', example(`outlive channels ${verb} linear-eng`))
      .action((id: string, options: JsonOption, command: Command) =>
        frame.run(command, (context) => change(context, id, status, options)),
      );
  }
  channels
    .command('set')
    .description('Make a channel, or change its policy; what is not named stays.')
    .argument('<id>', 'the channel')
    .option('--max-concurrent-runs <number>', 'how many may run at once (a new one: 1)')
    .option('--max-cost-per-day <usd>', 'start nothing beyond it on one day; none for no ceiling')
    .option('--max-tokens-per-day <number>', 'the same in tokens, as 200k')
    .addOption(
      new Option('--on-newer <policy>', 'what newer work on a subject does to older').choices(
        SUBJECT_POLICIES,
      ),
    )
    .option('--json', 'the channel as JSON')
    .addHelpText('after', example('outlive channels set linear-eng --max-concurrent-runs 2'))
    .action((id: string, options: SetOptions, command: Command) =>
      frame.run(command, (context) => put(context, id, policyOf(options), options)),
    );
}
