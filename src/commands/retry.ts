/** `outlive retry`: another attempt of work that failed or was lost from sight. */
import type { Command } from 'commander';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';

interface RetryOptions {
  readonly idempotencyKey?: string;
  readonly json?: boolean;
}

async function retry(
  { client, config, stdout, stderr }: Context,
  handle: string,
  { idempotencyKey, json }: RetryOptions,
): Promise<number> {
  const workUnit = await client.retryWorkUnit(handle, idempotencyKey);
  if (json) {
    await stdout.json(workUnit);
    return EXIT.ok;
  }
  const follow = `outlive logs ${workUnit.handle} --follow${workspaceFlag(config.workspace)}`;
  await stderr.line(`${workUnit.handle} is ${workUnit.status}. Follow it with: ${follow}`);
  return EXIT.ok;
}

/** Adds `retry` to the program. */
export function registerRetry(program: Command, frame: Frame): void {
  program
    .command('retry')
    .description('Queue another attempt of work that failed or is stale.')
    .argument('<handle>', 'its handle or id')
    .option('--idempotency-key <key>', 'a second retry with the same key is the first one')
    .option('--json', 'the work unit as JSON')
    .addHelpText(
      'after',
      `
Stale work is first proved to run no more; where that cannot be proved, the
command refuses and names the unit to stop.
${example('outlive retry issue42')}`,
    )
    .action((handle: string, options: RetryOptions, command: Command) =>
      frame.run(command, (context) => retry(context, handle, options)),
    );
}
