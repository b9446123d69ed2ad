/** `outlive gc`: remove what retention no longer keeps, now. */
import type { Command } from 'commander';
import type { CollectView } from '../api/schemas-maintenance.ts';
import { EXIT } from '../domain/errors.ts';
import { formatBytes } from './bytes.ts';
import { type Context, example, type Frame } from './context.ts';
import { parseDuration } from './duration.ts';
import type { JsonOption } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

interface GcOptions extends JsonOption {
  readonly dryRun?: boolean;
  readonly olderThan?: string;
}

function rows({ workUnits, events, files, otherRows, unclaimed, usage }: CollectView): string[][] {
  const { budgetBytes } = usage;
  const budget = budgetBytes === null ? 'no limit' : `of ${formatBytes(budgetBytes)}`;
  return [
    ['work units, for their age', String(workUnits.age)],
    ['work units, for the disk budget', String(workUnits.budget)],
    ['events', String(events)],
    ['their files', `${files.files} (${formatBytes(files.bytes)})`],
    ['other rows', String(otherRows)],
    ['files of nobody', `${unclaimed.removed} (${formatBytes(unclaimed.files.bytes)})`],
    ['used now', `${formatBytes(usage.fileBytes + usage.storeBytes)} ${budget}`],
  ];
}

async function gc(
  { client, stdout, stderr }: Context,
  { json, dryRun = false, olderThan }: GcOptions,
): Promise<number> {
  const report = await client.collect({
    dryRun,
    ...(olderThan === undefined ? {} : { olderThanMs: parseDuration(olderThan) }),
  });
  const exit = report.problems.length > 0 ? EXIT.failed : EXIT.ok;
  if (json) {
    await stdout.json(report);
    return exit;
  }
  await stderr.line(dryRun ? 'Would be removed:' : 'Removed:');
  for (const line of table(rows(report))) await stdout.line(line);
  const left = report.unclaimed.found - report.unclaimed.removed;
  if (left > 0) {
    await stderr.line(`${left} that belong to nobody stay until they are older:`);
    for (const file of report.unclaimed.paths) await stderr.line(`  ${sanitizeLine(file)}`);
  }
  const { excessBytes } = report.usage;
  if (excessBytes > 0) {
    const excess = formatBytes(excessBytes);
    await stderr.line(`Live and just ended work alone is ${excess} above the disk budget.`);
  }
  for (const problem of report.problems)
    await stderr.line(`Could not be removed: ${sanitizeLine(problem)}`);
  return exit;
}

/** Adds `gc` to the program. */
export function registerGc(program: Command, frame: Frame): void {
  program
    .command('gc')
    .description('Remove what retention no longer keeps. The daemon also does it by itself.')
    .option('--dry-run', 'only tell what would go')
    .option('--older-than <duration>', 'in the place of the configured age, as 7d or 12h')
    .option('--json', 'the report as JSON')
    .addHelpText(
      'after',
      `
Work that ended goes as a whole: events, spool, output, conversation, exit
records. What it was and how it ended stays. Live work is never touched.
${example('outlive gc --dry-run', 'outlive gc --older-than 7d')}`,
    )
    .action((options: GcOptions, command: Command) =>
      frame.run(command, (context) => gc(context, options)),
    );
}
