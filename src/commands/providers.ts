/** `outlive providers` and `outlive spend`: which providers work, and what was spent today. */
import type { Command } from 'commander';
import type { DaySpendView, ProviderView, SpendView } from '../api/schemas-provider.ts';
import { EXIT } from '../domain/errors.ts';
import { formatMicroUsd, toMicroUsd } from '../domain/spend.ts';
import { type Context, example, type Frame } from './context.ts';
import { JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

const PROVIDERS: Listing<ProviderView> = {
  header: ['PROVIDER', 'STATE', 'RUNNING', 'LIMIT', 'WAITING', 'MODEL', 'WHY'],
  row: ({ name, state, used, limit, waiting, model, blocked, errorCode }) => [
    name,
    state,
    String(used),
    limit === null ? 'none' : String(limit),
    String(waiting),
    model ?? '-',
    blocked ?? errorCode ?? '-',
  ],
  none: 'No provider is known yet: none has a limit, runs, or ever failed.',
};

async function resume(
  { client, stdout, stderr }: Context,
  name: string,
  { json }: JsonOption,
): Promise<number> {
  const provider = await client.resumeProvider(name);
  if (json) await stdout.json(provider);
  else
    await stderr.line(sanitizeLine(`${name} is ${provider.state}; what waited for it may start.`));
  return EXIT.ok;
}

/** `$0.40 of $2.50 (left $2.10), 12000 tokens`. */
export function spendText(spend: SpendView): string {
  const money = (usd: number): string => formatMicroUsd(toMicroUsd(usd));
  const { costUsd, maxCostUsd, remainingCostUsd, tokens, maxTokens, remainingTokens } = spend;
  const cost =
    maxCostUsd === null
      ? money(costUsd)
      : `${money(costUsd)} of ${money(maxCostUsd)} (left ${money(remainingCostUsd ?? 0)})`;
  const count =
    maxTokens === null
      ? `${tokens} tokens`
      : `${tokens} of ${maxTokens} tokens (left ${remainingTokens ?? 0})`;
  const unknown =
    spend.unpricedTokens === 0 ? '' : `, the cost of ${spend.unpricedTokens} tokens is not known`;
  return `${cost}, ${count}${unknown}`;
}

/** The human form, line by line. */
export function daySpendLines(view: DaySpendView): string[] {
  const rows = [
    [`${view.day} (${view.timeZone})`, spendText(view)],
    ...view.channels.map((channel) => [`  channel ${channel.channelId}`, spendText(channel)]),
  ];
  return table(
    rows.map((row) =>
      row.map((cell) =>
        cell.replace(
          /^(\s*)(.*)$/s,
          (_, blank: string, rest: string) => blank + sanitizeLine(rest),
        ),
      ),
    ),
  );
}

async function spend({ client, stdout }: Context, { json }: JsonOption): Promise<number> {
  const view = await client.spend();
  if (json) await stdout.json(view);
  else for (const line of daySpendLines(view)) await stdout.line(line);
  return EXIT.ok;
}

/** Adds `providers` to the program. */
export function registerProviders(program: Command, frame: Frame): void {
  const providers = program
    .command('providers')
    .description('List model providers and presets, or end the pause of one.')
    .addHelpText('after', example('outlive providers resume anthropic'));
  providers
    .command('list', { isDefault: true })
    .description('List them, with what pauses them.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive providers list'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.providers(), options, PROVIDERS),
      ),
    );
  providers
    .command('resume')
    .description('Start work of a provider again, now.')
    .argument('<name>', 'the provider or preset')
    .option('--json', 'the provider as JSON')
    .addHelpText('after', example('outlive providers resume anthropic'))
    .action((name: string, options: JsonOption, command: Command) =>
      frame.run(command, (context) => resume(context, name, options)),
    );
}

/** Adds `spend` to the program. */
export function registerSpend(program: Command, frame: Frame): void {
  program
    .command('spend')
    .description('Show what was spent today, and what may be.')
    .option('--json', 'as JSON')
    .addHelpText('after', example('outlive spend'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, (context) => spend(context, options)),
    );
}
