/** `outlive pause`, `drain` and `resume`: whether the workspace takes queued work. Durable. */
import type { Command } from 'commander';
import type { AdmissionView, SupervisorView } from '../api/schemas-runtime.ts';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';
import type { JsonOption } from './listing.ts';

interface DrainOptions extends JsonOption {
  readonly wait?: boolean;
}

const attemptsText = (count: number): string =>
  count === 1 ? '1 attempt runs' : `${count} attempts run`;

async function tell(
  { stdout, stderr, config }: Context,
  view: AdmissionView,
  { json }: JsonOption,
): Promise<void> {
  if (json) return stdout.json(view);
  const { admission, activeAttempts, queued } = view;
  const flag = workspaceFlag(config.workspace);
  const what =
    admission === 'open'
      ? 'Queued work is taken again.'
      : `No queued work is taken until: outlive resume${flag}`;
  await stderr.line(`${what} (${attemptsText(activeAttempts)}, ${queued} queued)`);
}

const underWay = ({ counts }: SupervisorView): number =>
  counts.claimed + counts.running + counts.waiting_for_approval + counts.cancelling;

/**
 * Resolves once nothing runs. Told by the workspace's events; a daemon that restarts
 * meanwhile is a new snapshot and no reason to stop waiting.
 */
async function untilDrained({ client, stderr }: Context): Promise<void> {
  const done = new AbortController();
  let said = -1;
  const look = async (view: SupervisorView): Promise<void> => {
    const left = underWay(view);
    if (left !== said)
      await stderr.line(left === 0 ? 'Nothing runs.' : `${attemptsText(left)} on.`);
    said = left;
    if (left === 0) done.abort();
  };
  await client.watchWorkspace({
    signal: done.signal,
    onSnapshot: ({ supervisor }) => look(supervisor),
    onEvent: async ({ type }) => {
      if (type.startsWith('work_unit.')) await look(await client.supervisor());
    },
  });
}

async function drain(context: Context, options: DrainOptions): Promise<number> {
  const view = await context.client.drain();
  if (options.wait) {
    await untilDrained(context);
    const { queue } = await context.client.supervisor();
    await tell(context, { ...view, activeAttempts: 0, queued: queue.queued }, options);
  } else await tell(context, view, options);
  return EXIT.ok;
}

/** Adds `pause` to the program. */
export function registerPause(program: Command, frame: Frame): void {
  program
    .command('pause')
    .description('Take no queued work until resumed. What runs goes on; submits are queued.')
    .option('--json', 'as JSON')
    .addHelpText('after', example('outlive pause'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) => {
        await tell(context, await context.client.pause(), options);
        return EXIT.ok;
      }),
    );
}

/** Adds `drain` to the program. */
export function registerDrain(program: Command, frame: Frame): void {
  program
    .command('drain')
    .description('Take no queued work, to let what runs come to its end.')
    .option('--wait', 'return once nothing runs any more')
    .option('--json', 'as JSON')
    .addHelpText('after', example('outlive drain --wait && outlive daemon stop'))
    .action((options: DrainOptions, command: Command) =>
      frame.run(command, (context) => drain(context, options)),
    );
}

/** Adds `resume` to the program. */
export function registerResume(program: Command, frame: Frame): void {
  program
    .command('resume')
    .description('Take queued work again after pause or drain.')
    .option('--json', 'as JSON')
    .addHelpText('after', example('outlive resume'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) => {
        await tell(context, await context.client.resume(), options);
        return EXIT.ok;
      }),
    );
}
