/** `outlive driver`: who looks for work, and what came of it. */
import { type Command, Option } from 'commander';
import type { DriverTick, DriverView } from '../api/schemas-drivers.ts';
import { EXIT } from '../domain/errors.ts';
import { LEFTOVER_POLICIES } from '../domain/outcome.ts';
import { SANDBOX_MODES } from '../domain/sandbox.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';
import { type AddOptions, buildSpec } from './driver-input.ts';
import { DRIVERS, detailLines, reportLines, stateText } from './driver-view.ts';
import { JSON_LIST, type JsonOption, printList } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';

const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];

async function told(
  { stdout, stderr }: Context,
  driver: object,
  text: string,
  { json }: JsonOption,
): Promise<number> {
  if (json) await stdout.json(driver);
  else await stderr.line(sanitizeLine(text));
  return EXIT.ok;
}

async function add(context: Context, name: string, options: AddOptions): Promise<number> {
  const spec = buildSpec(options);
  const driver = await context.client.putDriver(name, spec, options.replace === true);
  const flag = workspaceFlag(context.config.workspace);
  const next =
    driver.nextAt === null
      ? `Let it look for work with: outlive driver tick ${name}${flag}`
      : `It looks for work by itself. See: outlive driver show ${name}${flag}`;
  return told(context, driver, `${name} is ${stateText(driver)}. ${next}`, options);
}

async function show(
  { client, stdout }: Context,
  name: string,
  { json }: JsonOption,
): Promise<number> {
  const driver = await client.driver(name);
  if (json) await stdout.json(driver);
  else for (const line of detailLines(driver)) await stdout.line(line);
  return EXIT.ok;
}

async function pause(
  context: Context,
  name: string,
  subject: string | undefined,
  options: JsonOption,
): Promise<number> {
  const driver = await context.client.pauseDriver(name, subject);
  const what = subject === undefined ? `${name} is paused` : `${subject} is held`;
  return told(context, driver, `${what}; what runs goes on.`, options);
}

async function resume(
  context: Context,
  name: string,
  subject: string | undefined,
  { json }: JsonOption,
): Promise<number> {
  const resumed = await context.client.resumeDriver(name, subject);
  if (json) {
    await context.stdout.json(resumed);
    return EXIT.ok;
  }
  const { driver, released } = resumed;
  const held = released.length === 0 ? '' : ` Held no more: ${released.join(', ')}.`;
  await context.stderr.line(sanitizeLine(`${name} is ${stateText(driver)}.${held}`));
  return EXIT.ok;
}

/** Follows the census, whose end is acted on before anybody can ask about it. */
async function awaitTick({ client }: Context, { driver }: DriverTick): Promise<DriverView> {
  if (driver.underWay === null) return driver;
  const events = client.followEvents(driver.underWay.censusId);
  while (!(await events.next()).done);
  return client.driver(driver.name);
}

async function tick(
  context: Context,
  name: string,
  { json, wait }: JsonOption & { readonly wait?: boolean },
): Promise<number> {
  const { client, stdout, stderr } = context;
  const begun = await client.tickDriver(name);
  if (!begun.begun) await stderr.line(`Tick ${begun.tick} was under way already.`);
  if (wait === false) {
    if (json) await stdout.json(begun);
    else await stderr.line(`Tick ${begun.tick} of ${name} has begun.`);
    return EXIT.ok;
  }
  const { last } = await awaitTick(context, begun);
  if (last === null || last.tick < begun.tick) {
    await stderr.line(`What tick ${begun.tick} found is not known: ${name} was changed meanwhile.`);
    return EXIT.failed;
  }
  if (json) await stdout.json(last);
  else for (const line of reportLines(name, last)) await stdout.line(line);
  return last.ok ? EXIT.ok : EXIT.failed;
}

const NAME = ['<name>', 'the driver'] as const;

function registerAdd(driver: Command, frame: Frame): void {
  driver
    .command('add')
    .description('Make a driver: a census that finds subjects, and what is run for each.')
    .argument('<name>', 'small letters, digits and "-"')
    .requiredOption('--census <command>', 'sh -c COMMAND prints one line of JSON for each subject')
    .option('--census-timeout <duration>', 'end the census after this long (default: 2m)')
    .option('--every <duration>', 'look this often, as 5m (default: only by driver tick)')
    .option('--jitter <duration>', 'at most this much later (default: a tenth of --every)')
    .option('--run <command>', 'sh -c COMMAND for a subject; it is told by OUTLIVE_… variables')
    .option(
      '--prompt <text>',
      'an agent for a subject; {{subject}}, {{handle}}, {{title}}, {{vars.NAME}}',
    )
    .option('--prompt-file <file>', 'the same in a file, read at each tick')
    .option('--model <provider/model>', "the agent's model (default: the person's own)")
    .option('--handle-from <field>', 'which field of a line is the handle (default: handle)')
    .option('--verify <command>', 'sh -c COMMAND after a run: only status 0 makes it done')
    .option('--verify-timeout <duration>', 'end that command after this long (default: 10m)')
    .option('--output <path>', 'a file that a run must write, or a glob; may be repeated', collect)
    .option(
      '--result-schema <file>',
      'the JSON a run must return: a JSON Schema, or a file with it',
    )
    .addOption(
      new Option(
        '--leftovers <policy>',
        'whether processes that a run leaves behind fail it (default: fail)',
      ).choices(LEFTOVER_POLICIES),
    )
    .option('--hard-timeout <duration>', 'end a run after this long (default: 90m)')
    .option('--cwd <dir>', 'of census and runs (default: the current directory)')
    .option('--priority <number>', 'of runs; higher is claimed earlier (default: 0)')
    .option('--max-at-once <number>', 'how many subjects are worked on at once (default: 1)')
    .option('--env <name=value>', 'a variable of census and runs; may be repeated', collect)
    .option('--env-file <path>', 'a file of them, read at each start; may be repeated', collect)
    .option('--tool-policy <file>', 'what is asked before a tool acts: JSON, or a file with it')
    .addOption(
      new Option('--sandbox <mode>', 'how far it is kept from everything else').choices(
        SANDBOX_MODES,
      ),
    )
    .option('--max-cost <usd>', 'stop a run when all its attempts cost this much, as 2.50')
    .option('--max-tokens <number>', 'stop a run at so many tokens, as 200k')
    .option('--replace', 'take the place of a driver of this name')
    .option('--json', 'the driver as JSON')
    .addHelpText(
      'after',
      example(
        'outlive driver add tasks --every 1m --max-at-once 4 \\',
        "    --census './census' --run './work' --verify 'test -f done/$OUTLIVE_HANDLE'",
      ),
    )
    .action((name: string, options: AddOptions, command: Command) =>
      frame.run(command, (context) => add(context, name, options)),
    );
}

function registerReads(driver: Command, frame: Frame): void {
  driver
    .command('list', { isDefault: true })
    .description('List all drivers.')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive driver list'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        printList(context, await context.client.drivers(), options, DRIVERS),
      ),
    );
  driver
    .command('show')
    .description('Show a driver: its last census, its subjects, what is held.')
    .argument(...NAME)
    .option('--json', 'the driver as JSON')
    .addHelpText('after', example('outlive driver show tasks'))
    .action((name: string, options: JsonOption, command: Command) =>
      frame.run(command, (context) => show(context, name, options)),
    );
}

function registerVerbs(driver: Command, frame: Frame): void {
  const about = ['[subject]', 'only this one of its subjects'] as const;
  driver
    .command('pause')
    .description('Let a driver look for no more work, or hold one subject; what runs goes on.')
    .argument(...NAME)
    .argument(...about)
    .option('--json', 'the driver as JSON')
    .addHelpText('after', example('outlive driver pause tasks'))
    .action((name: string, subject: string | undefined, options: JsonOption, command: Command) =>
      frame.run(command, (context) => pause(context, name, subject, options)),
    );
  driver
    .command('resume')
    .description('Let it look again, with all that was held; or take up one subject.')
    .argument(...NAME)
    .argument(...about)
    .option('--json', 'the driver, and what is held no more, as JSON')
    .addHelpText('after', example('outlive driver resume tasks github:acme/app#42'))
    .action((name: string, subject: string | undefined, options: JsonOption, command: Command) =>
      frame.run(command, (context) => resume(context, name, subject, options)),
    );
  driver
    .command('tick')
    .description('Look for work now, and say what was started, what was not, and why.')
    .argument(...NAME)
    .option('--no-wait', 'return when the census has been asked for')
    .option('--json', 'what came of it as JSON')
    .addHelpText('after', example('outlive driver tick tasks'))
    .action((name: string, options: JsonOption & { wait?: boolean }, command: Command) =>
      frame.run(command, (context) => tick(context, name, options)),
    );
  driver
    .command('remove')
    .description('Forget a driver; what runs goes on.')
    .argument(...NAME)
    .option('--json', 'its name as JSON')
    .addHelpText('after', example('outlive driver remove tasks'))
    .action((name: string, options: JsonOption, command: Command) =>
      frame.run(command, async (context) =>
        told(
          context,
          await context.client.removeDriver(name),
          `${name} is removed; what runs goes on.`,
          options,
        ),
      ),
    );
}

/** Adds `driver` to the program. */
export function registerDriver(program: Command, frame: Frame): void {
  const driver = program
    .command('driver')
    .description('List drivers: each looks for work and starts one run per subject.')
    .addHelpText('after', example('outlive driver list'));
  registerReads(driver, frame);
  registerAdd(driver, frame);
  registerVerbs(driver, frame);
}
