/** `outlive restore`: a copy takes the store's place, while no daemon runs. */
import path from 'node:path';
import type { Command } from 'commander';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';
import type { JsonOption } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';

const SHOWN = 20;

async function tellAll(
  stderr: Context['stderr'],
  what: string,
  items: readonly string[],
): Promise<void> {
  if (items.length === 0) return;
  await stderr.line(what);
  for (const item of items.slice(0, SHOWN)) await stderr.line(`  ${sanitizeLine(item)}`);
  if (items.length > SHOWN) await stderr.line(`  and ${items.length - SHOWN} more`);
}

async function restoreStore(
  { config, stdout, stderr }: Context,
  source: string,
  { json }: JsonOption,
): Promise<number> {
  // Loaded when needed: no other command opens a store.
  const { restore } = await import('../store/restore.ts');
  const { workspace, directories } = config;
  const report = restore(
    path.resolve(source),
    { workspace, ...directories },
    new Date().toISOString(),
  );
  if (json) {
    await stdout.json(report);
    return EXIT.ok;
  }
  const { workUnits, liveWorkUnits, attempts, events, replaced, unknownAttempts } = report;
  await stdout.line(sanitizeLine(report.file));
  await stderr.line(
    `Restored: ${workUnits} work units (${liveWorkUnits} live), ${attempts} attempts, ${events} events.`,
  );
  if (replaced) await stderr.line(`The store that was there: ${sanitizeLine(replaced)}`);
  await tellAll(
    stderr,
    'These ran after the copy was made, and it has no row of them:',
    unknownAttempts,
  );
  await tellAll(
    stderr,
    'These were under way and have no files here; cancel what you know was done:',
    report.withoutFiles,
  );
  const flag = workspaceFlag(workspace);
  await stderr.line(
    `No queued work is taken yet. Look at what is queued, then: outlive daemon start${flag}; outlive resume${flag}`,
  );
  return EXIT.ok;
}

/** Adds `restore` to the program. */
export function registerRestore(program: Command, frame: Frame): void {
  program
    .command('restore')
    .description('Put a copy in the place of the store. The daemon must be stopped.')
    .argument('<file>', 'a file that outlive backup wrote')
    .option('--json', 'what was restored, as JSON')
    .addHelpText(
      'after',
      `
The store that was there is kept beside the new one. Queued work waits for
outlive resume: some of it may have run after the copy was made.
${example('outlive restore ~/outlive.db')}`,
    )
    .action((file: string, options: JsonOption, command: Command) =>
      frame.run(command, (context) => restoreStore(context, file, options)),
    );
}
