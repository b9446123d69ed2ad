/** `outlive debris`: what work left behind on a branch. Needs no daemon. */
import path from 'node:path';
import type { Command } from 'commander';
import { DEBRIS_CLASSES } from '../domain/debris.ts';
import { EXIT } from '../domain/errors.ts';
import { type DebrisRemoval, readDebris, removeEmpty } from '../linear/debris.ts';
import { type Context, example, type Frame } from './context.ts';
import { sanitizeLine } from './sanitize.ts';

interface DebrisOptions {
  readonly base?: string;
  readonly branch?: string;
  readonly deleteEmpty?: boolean;
  readonly json?: boolean;
}

/** @returns 1 where an empty branch was to be deleted and is still there. */
async function debris(
  { stdout, stderr }: Context,
  given: string,
  { base, branch, deleteEmpty, json }: DebrisOptions,
): Promise<number> {
  const directory = path.resolve(given);
  const found = await readDebris({ directory, base, branch });
  const removal: DebrisRemoval | null = deleteEmpty ? await removeEmpty(directory, found) : null;
  const kept = removal === null || removal === 'removed' ? null : removal.kept;
  if (json) await stdout.json({ ...found, deleted: removal === 'removed', kept });
  else {
    await stdout.line(found.class);
    const why = found.unfinished === null ? '' : `: ${found.unfinished}`;
    await stderr.line(sanitizeLine(`${DEBRIS_CLASSES[found.class]}${why}.`));
    if (removal === 'removed') await stderr.line(sanitizeLine(`${found.branch} is deleted.`));
    if (kept !== null) await stderr.line(sanitizeLine(`Nothing is deleted: ${kept}.`));
  }
  return kept !== null && found.class === 'empty' ? EXIT.failed : EXIT.ok;
}

/** Adds `debris` to the program. */
export function registerDebris(program: Command, frame: Frame): void {
  program
    .command('debris')
    .description('Say what work left behind on a branch: absent, empty, publishable or half-done.')
    .argument('<dir>', 'a work tree')
    .option('--branch <name>', 'the branch (default: the one that is checked out there)')
    .option('--base <branch>', 'what it began from (default: the default branch)')
    .option('--delete-empty', 'delete the branch if it is empty, and no other')
    .option('--json', 'as one JSON object')
    .addHelpText(
      'after',
      `
Changed or new files, a merge or rebase under way, a detached HEAD and stashes make it
half-done. Nothing is written but by --delete-empty, which is "git branch -d": it never
forces, and a branch that is checked out stays.

Exit status: 0 it is said; 1 an empty branch was to be deleted and could not be;
2 usage; 5 there is no repository, or no base, to look at.
${example('outlive debris . --branch issue42 --json')}`,
    )
    .action((directory: string, options: DebrisOptions, command: Command) =>
      frame.run(command, (context) => debris(context, directory, options)),
    );
}
