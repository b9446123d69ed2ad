/** `outlive cancel`: asks for the end of one work unit. */
import type { Command } from 'commander';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';

interface CancelOptions {
  readonly reason?: string;
  readonly json?: boolean;
}

async function cancel(
  { client, config, stdout, stderr }: Context,
  handle: string,
  { reason, json }: CancelOptions,
): Promise<number> {
  const workUnit = await client.cancelWorkUnit(handle, reason === undefined ? {} : { reason });
  if (json) {
    await stdout.json(workUnit);
    return EXIT.ok;
  }
  const isOver = workUnit.status === 'cancelled';
  const watch = `Watch its end with: outlive logs ${workUnit.handle} --follow${workspaceFlag(config.workspace)}`;
  await stderr.line(`${workUnit.handle} is ${workUnit.status}.${isOver ? '' : ` ${watch}`}`);
  return EXIT.ok;
}

/** Adds `cancel` to the program. */
export function registerCancel(program: Command, frame: Frame): void {
  program
    .command('cancel')
    .description('Cancel one work unit, whatever it is doing.')
    .argument('<handle>', 'its handle or id')
    .option('--reason <text>', 'kept with the cancellation')
    .option('--json', 'the work unit as JSON')
    .addHelpText('after', example('outlive cancel issue42 --reason "wrong branch"'))
    .action((handle: string, options: CancelOptions, command: Command) =>
      frame.run(command, (context) => cancel(context, handle, options)),
    );
}
