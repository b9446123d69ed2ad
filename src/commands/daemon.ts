/** `outlive daemon`: the life of the daemon itself. The only command that needs systemd. */
import type { Command } from 'commander';
import { example, type Frame } from './context.ts';
import { restartAnywhere, startAnywhere, stopAnywhere } from './daemon-anywhere.ts';
import { connectHost } from './daemon-connect.ts';
import type { DaemonContext } from './daemon-host.ts';
import { daemonLogs, type LogsOptions } from './daemon-journal.ts';
import { type StatusOptions, status } from './daemon-status.ts';

type DaemonBody = (context: DaemonContext) => Promise<number>;

/** Adds `daemon` and its verbs to the program. */
export function registerDaemon(program: Command, frame: Frame): void {
  const run = (command: Command, body: DaemonBody): Promise<void> =>
    frame.run(command, (context) => body({ ...context, connectHost: () => connectHost(context) }));
  const daemon = program
    .command('daemon')
    .description('Start, stop and look at the daemon of a workspace.')
    .addHelpText('after', example('outlive daemon start', 'outlive --workspace lab daemon status'));
  addLifeVerbs(daemon, run);
  addReadingVerbs(daemon, run);
}

type Run = (command: Command, body: DaemonBody) => Promise<void>;

function addLifeVerbs(daemon: Command, run: Run): void {
  daemon
    .command('start')
    .description(
      'Start it as a service of your systemd user manager (without one, as a process of its own); return when it answers.',
    )
    .addHelpText('after', example('outlive daemon start'))
    .action((_options: unknown, command: Command) => run(command, startAnywhere));
  daemon
    .command('stop')
    .description('Stop it. Running attempts go on.')
    .addHelpText('after', example('outlive daemon stop'))
    .action((_options: unknown, command: Command) => run(command, stopAnywhere));
  daemon
    .command('restart')
    .description('Stop it and start it again. Running attempts go on.')
    .addHelpText('after', example('outlive daemon restart'))
    .action((_options: unknown, command: Command) => run(command, restartAnywhere));
}

function addReadingVerbs(daemon: Command, run: Run): void {
  daemon
    .command('status')
    .description('Show the daemon that answers; exit 4 when none does.')
    .option('--json', 'as JSON')
    .addHelpText('after', example('outlive daemon status --json'))
    .action((options: StatusOptions, command: Command) =>
      run(command, (context) => status(context, options)),
    );
  daemon
    .command('logs')
    .description("Print the daemon's log from the journal.")
    .option('--follow', 'go on as lines come')
    .option('-n, --lines <count>', 'the newest so many lines', '100')
    .addHelpText('after', example('outlive daemon logs -n 50 --follow'))
    .action((options: LogsOptions, command: Command) =>
      run(command, (context) => daemonLogs(context, options)),
    );
}
