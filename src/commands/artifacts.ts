/** `outlive artifacts` and `outlive artifact`: the files that attempts left to read. */
import { Argument, type Command } from 'commander';
import type { ArtifactView } from '../api/schemas-artifacts.ts';
import { ARTIFACT_KINDS, type ArtifactKind } from '../domain/artifacts.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { formatBytes } from './bytes.ts';
import { type Context, example, type Frame } from './context.ts';
import { JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';
import { sanitize } from './sanitize.ts';

const ARTIFACTS: Listing<ArtifactView> = {
  header: ['ATTEMPT', 'KIND', 'SIZE', 'WHOLE', 'SHA256', 'ID'],
  row: ({ attemptNumber, kind, bytes, truncated, sha256, id }) => [
    String(attemptNumber),
    kind,
    formatBytes(bytes),
    truncated ? 'no' : 'yes',
    sha256.slice(0, 12),
    id,
  ],
  none: 'It left nothing to read: no attempt has ended, or retention was there.',
};

interface ReadOptions {
  readonly attempt?: string;
}

/** The number of an attempt as typed. @throws OutliveError `usage`. */
function parseAttempt(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new OutliveError('usage', `"${text}" is not the number of an attempt. Use 1, 2, 3, …`);
}

/** Of the newest attempt that has one, unless another is wanted. @throws OutliveError `not_found`. */
function choose(
  items: readonly ArtifactView[],
  handle: string,
  kind: ArtifactKind,
  attempt: number | null,
): ArtifactView {
  const found = items.findLast(
    (item) => item.kind === kind && (attempt === null || item.attemptNumber === attempt),
  );
  if (found) return found;
  const of = attempt === null ? handle : `attempt ${attempt} of ${handle}`;
  throw new OutliveError(
    'not_found',
    `There is no ${kind} of ${of}. See: outlive artifacts ${handle}. While it runs: outlive logs ${handle} --follow.`,
  );
}

/** As it is, or, on a terminal, with nothing in it that a terminal would act on. */
export async function printArtifact(
  { client, stdout }: Pick<Context, 'client' | 'stdout'>,
  { id }: Pick<ArtifactView, 'id'>,
): Promise<void> {
  const content = client.artifactContent(id);
  if (!stdout.isTerminal) {
    for await (const piece of content) await stdout.write(piece);
    return;
  }
  const decoder = new TextDecoder();
  let held = '';
  for await (const piece of content) {
    const text = held + decoder.decode(piece, { stream: true });
    // A line end may come in two pieces.
    held = text.endsWith('\r') ? '\r' : '';
    await stdout.write(sanitize(text.slice(0, text.length - held.length)));
  }
  await stdout.write(sanitize(held + decoder.decode()));
}

async function read(
  context: Context,
  handle: string,
  kind: ArtifactKind,
  options: ReadOptions,
): Promise<number> {
  const attempt = options.attempt === undefined ? null : parseAttempt(options.attempt);
  const { items } = await context.client.artifacts(handle);
  const artifact = choose(items, handle, kind, attempt);
  await printArtifact(context, artifact);
  if (artifact.truncated) {
    await context.stderr.line('outlive: a bound was reached, so this is not all there was.');
  }
  return EXIT.ok;
}

/** Adds `artifacts` and `artifact` to the program. */
export function registerArtifacts(program: Command, frame: Frame): void {
  program
    .command('artifacts')
    .description('List the files that ended attempts left to read.')
    .argument('<handle>', 'its handle or id')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive artifacts issue42'))
    .action((handle: string, options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.artifacts(handle), options, ARTIFACTS),
      ),
    );
  program
    .command('artifact')
    .description('Print one of them: stdout, stderr, transcript or diff.')
    .argument('<handle>', 'its handle or id')
    .addArgument(new Argument('<kind>', 'which').choices(ARTIFACT_KINDS))
    .option('--attempt <number>', 'of this attempt (default: the newest that has one)')
    .addHelpText(
      'after',
      `\nOn a terminal control characters are written out; into a pipe it goes byte for byte.\n${example(
        'outlive artifact issue42 transcript',
        'outlive artifact issue42 diff | less',
      )}`,
    )
    .action((handle: string, kind: ArtifactKind, options: ReadOptions, command: Command) =>
      frame.run(command, (context) => read(context, handle, kind, options)),
    );
}
