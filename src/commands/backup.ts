/** `outlive backup`: a copy of the store, taken while the daemon works. */
import path from 'node:path';
import type { Command } from 'commander';
import { EXIT } from '../domain/errors.ts';
import { formatBytes } from './bytes.ts';
import { type Context, example, type Frame } from './context.ts';
import type { JsonOption } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';

interface BackupOptions extends JsonOption {
  readonly force?: boolean;
}

async function backup(
  { client, stdout, stderr }: Context,
  file: string,
  { json, force = false }: BackupOptions,
): Promise<number> {
  // The daemon stands in another directory: the path is ours to complete.
  const view = await client.backup({ path: path.resolve(file), force });
  if (json) {
    await stdout.json(view);
    return EXIT.ok;
  }
  await stdout.line(sanitizeLine(view.file));
  const { workUnits, liveWorkUnits, attempts, events, bytes } = view;
  await stderr.line(
    `${workUnits} work units (${liveWorkUnits} live), ${attempts} attempts, ${events} events, ${formatBytes(bytes)}; read from the copy, which is whole.`,
  );
  return EXIT.ok;
}

/** Adds `backup` to the program. */
export function registerBackup(program: Command, frame: Frame): void {
  program
    .command('backup')
    .description('Copy the store to a file, while work goes on.')
    .argument('<file>', 'where to; the directory must be there')
    .option('--force', 'replace a file that is there')
    .option('--json', 'what the copy holds, as JSON')
    .addHelpText(
      'after',
      `
The copy holds work units, attempts, events and settings. Conversations and
spools are files that only grow: copy them after the store, with any tool.
${example('outlive backup ~/outlive.db')}`,
    )
    .action((file: string, options: BackupOptions, command: Command) =>
      frame.run(command, (context) => backup(context, file, options)),
    );
}
