/** `outlive run`: submits work and, unless told otherwise, stays with it to its end. */
import type { Command } from 'commander';
import { Option } from 'commander';
import type { Started } from '../client/client.ts';
import { EXIT } from '../domain/errors.ts';
import { LEFTOVER_POLICIES } from '../domain/outcome.ts';
import { SUBJECT_POLICIES } from '../domain/resources.ts';
import { LOST_POLICIES } from '../domain/resume.ts';
import { SANDBOX_MODES } from '../domain/sandbox.ts';
import { RUNNERS } from '../domain/work-unit.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';
import { dryRun } from './dry-run.ts';
import { Interrupts } from './interrupt.ts';
import { attend } from './run-attended.ts';
import { buildRequest, type RunOptions } from './run-input.ts';

async function readStdin(): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

async function run(
  context: Context,
  words: readonly string[],
  options: RunOptions,
): Promise<number> {
  const { config, client, stderr } = context;
  if (options.promptFile === '-' && process.stdin.isTTY) {
    await stderr.line('Type the prompt; end it with Ctrl-D on a line of its own.');
  }
  const request = await buildRequest(words, options, {
    user: config.user,
    cwd: () => process.cwd(),
    env: context.env,
    readStdin,
  });
  if (options.dryRun) return dryRun(context, request, options.json === true);
  if (options.detach) return detach(context, await client.startWorkUnit(request), options);
  // From here on Ctrl-C has a meaning of its own: the work may exist before we hear of it.
  const interrupts = new Interrupts();
  try {
    const started = await client.startWorkUnit(request);
    await stderr.line(`${startedText(started)}.`);
    return await attend(context, started, options, interrupts);
  } finally {
    interrupts.stop();
  }
}

function startedText({ workUnit, created }: Started): string {
  const { handle, id, status } = workUnit;
  return created
    ? `${handle} is ${status} (${id})`
    : `${handle} was started with this idempotency key before; it is ${status} (${id})`;
}

async function detach(
  { stdout, stderr, config }: Context,
  started: Started,
  { json }: RunOptions,
): Promise<number> {
  const { handle } = started.workUnit;
  const follow = `outlive logs ${handle} --follow${workspaceFlag(config.workspace)}`;
  await stderr.line(`${startedText(started)}. Follow it with: ${follow}`);
  await (json ? stdout.json(started.workUnit) : stdout.line(handle));
  return EXIT.ok;
}

const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];

const HELP = `
The final text goes to stdout, everything else to stderr. Ctrl-C leaves the run
running and ends this command as an interrupt does, so that "&&" does not go on.

Exit status: 0 succeeded (and left what --verify, --output and --result-schema
ask for), 1 failed, 2 usage, 4 no daemon, 5 conflict,
124 a timeout, 130 cancelled (or Ctrl-C here).
${example('outlive run --handle fix42 --hard-timeout 30m -- fix the failing test')}`;

/** Adds `run` to the program. */
export function registerRun(program: Command, frame: Frame): void {
  program
    .command('run')
    .description('Run an agent on a prompt, or a command, and wait for its end.')
    .argument('[words...]', 'the prompt, or with --runner command the program and its arguments')
    .usage('[options] -- PROMPT… | CMD…')
    .addOption(new Option('--runner <runner>', 'what runs it').choices(RUNNERS).default('pi'))
    .option('--handle <handle>', 'its name while it lives (default: a short random one)')
    .option('--cwd <dir>', 'the work tree (default: the current directory)')
    .option('--model <provider/model>', "the model (default: the person's own)")
    .option('--hard-timeout <duration>', 'end it after this long, as 90m or 1h30m (default: 60m)')
    .option('--preset <name>', 'a provider and model by their name in config.json')
    .option('--max-cost <usd>', 'stop it when all its attempts cost this much, as 2.50')
    .option('--max-tokens <number>', 'stop it at so many tokens, as 200000, 200k or 1.5m')
    .option(
      '--provider-attempts <number>',
      'how many attempts its provider may fail (default: 5, 1 tries nothing again)',
    )
    .option('--idempotency-key <key>', 'a second run with the same key is the first one')
    .option('--prompt-file <file>', 'read the prompt from a file, "-" is stdin')
    .option('--priority <number>', 'higher is claimed earlier (default: 0)')
    .option('--channel <id>', 'the lane it runs in, by whose policy')
    .option('--subject <name>', 'what outside it is about; one at a time works on it')
    .addOption(
      new Option('--on-newer <policy>', 'what this does to older work on the subject').choices(
        SUBJECT_POLICIES,
      ),
    )
    .option('--after <handle>', 'wait for this to have its outcome; may be repeated', collect)
    .option('--after-needed <any|number>', 'how many of those have to have it (default: all)')
    .option('--no-queue', 'refuse at once (exit 5) instead of waiting for its turn')
    .option(
      '--env <name=value>',
      'a variable for it, or NAME to hand yours on; repeatable',
      collect,
    )
    .option('--env-file <path>', 'a file of variables, read at each start; repeatable', collect)
    .option('--exclusive', 'nobody else may work in --cwd meanwhile (default of pi)')
    .option('--no-exclusive', 'others may (default of command)')
    .option('--lease <type:key>', 'hold this too, alone; may be repeated', collect)
    .addOption(
      new Option(
        '--on-lost <policy>',
        'what becomes of it when its machine or user manager goes away (default: pi resume, command fail)',
      ).choices(LOST_POLICIES),
    )
    .option('--tool-policy <file>', 'what is asked before a tool acts: JSON, or a file with it')
    .addOption(
      new Option(
        '--sandbox <mode>',
        'how far it is kept from everything else, or not run at all (default: as configured)',
      ).choices(SANDBOX_MODES),
    )
    .option('--verify <command>', 'sh -c COMMAND after it: only status 0 makes it done')
    .option('--verify-timeout <duration>', 'end that command after this long (default: 10m)')
    .option('--output <path>', 'a file it must write, or a glob; may be repeated', collect)
    .option('--result-schema <file>', 'the JSON it must return: a JSON Schema, or a file with it')
    .addOption(
      new Option(
        '--leftovers <policy>',
        'whether processes that it leaves behind fail it (default: ignore)',
      ).choices(LEFTOVER_POLICIES),
    )
    .option('--dry-run', 'print what systemd would be asked to start, and start nothing')
    .option('--detach', 'print the handle and return at once')
    .option('--cancel-on-interrupt', 'Ctrl-C cancels the run instead of leaving it to run on')
    .option('--json', 'events as NDJSON; with --detach or --dry-run one JSON object')
    .addHelpText('after', HELP)
    .action((words: string[], options: RunOptions, command: Command) =>
      frame.run(command, (context) => run(context, words, options)),
    );
}
