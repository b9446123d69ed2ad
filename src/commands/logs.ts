/** `outlive logs`: what the runner said and did, for reading. */
import type { Command } from 'commander';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame } from './context.ts';
import { eventSource } from './event-source.ts';
import { styled } from './piece-style.ts';
import { type Piece, Transcript } from './transcript.ts';

interface LogsOptions {
  readonly follow?: boolean;
}

async function logs(context: Context, handle: string, options: LogsOptions): Promise<number> {
  const { id, runnerId } = await context.client.getWorkUnit(handle);
  const transcript = new Transcript(runnerId, { toolOutput: true });
  for await (const event of eventSource(context, id, { afterSeq: 0, follow: options.follow })) {
    // What outlive did belongs to `events`; a command's output is to stay its own, byte for byte.
    const pieces = transcript
      .push(event)
      .filter((piece) => piece.kind !== 'note' || runnerId === 'pi');
    await print(context, pieces);
  }
  await print(context, transcript.end());
  return EXIT.ok;
}

async function print({ stdout, stderr }: Context, pieces: readonly Piece[]): Promise<void> {
  for (const piece of pieces) {
    if (piece.kind === 'raw_stdout') await stdout.write(piece.text);
    else if (piece.kind === 'raw_stderr') await stderr.write(piece.text);
    else await stdout.line(styled(piece, stdout));
  }
}

/** Adds `logs` to the program. */
export function registerLogs(program: Command, frame: Frame): void {
  program
    .command('logs')
    .description("Print the agent's text and tool calls, or a command's own output.")
    .argument('<handle>', 'its handle or id')
    .option('--follow', 'go on until it ends')
    .addHelpText(
      'after',
      `\nA command's stdout and stderr go to stdout and stderr, as it wrote them.\n${example('outlive logs issue42 --follow')}`,
    )
    .action((handle: string, options: LogsOptions, command: Command) =>
      frame.run(command, (context) => logs(context, handle, options)),
    );
}
