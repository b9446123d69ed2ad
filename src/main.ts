#!/usr/bin/env node
/** outlived: the daemon of one workspace. */
import { parseArgs } from 'node:util';
import type { Logger } from 'pino';
import pino from 'pino';
import type { Daemon } from './compose.ts';
import { startDaemon, systemEntropy } from './compose.ts';
import type { Config } from './config.ts';
import { loadConfig } from './config.ts';
import { EXIT, OutliveError } from './domain/errors.ts';
import type { Faults } from './supervisor/faults.ts';
import { isFaultPoint, killAt, noFaults } from './supervisor/faults.ts';
import { createNotifier } from './systemd/notify.ts';
import { VERSION } from './version.ts';

const HELP = `Usage: outlived [--workspace NAME]

The daemon of one workspace: it starts agents as systemd user units, follows them and
answers the outlive command. It may be killed at any moment; what runs goes on running.

Usually started by: outlive daemon start

Options:
  --workspace NAME  the workspace (default: OUTLIVE_WORKSPACE, else main)
  --version         print the version
  --help            print this
`;

interface Arguments {
  readonly workspace?: string | undefined;
  readonly help?: boolean | undefined;
  readonly version?: boolean | undefined;
}

function readArguments(argv: readonly string[]): Arguments {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        workspace: { type: 'string' },
        help: { type: 'boolean' },
        version: { type: 'boolean' },
      },
    });
    return values;
  } catch (error) {
    throw new OutliveError('usage', `${(error as Error).message} See: outlived --help`);
  }
}

function armedFault(config: Config): Faults {
  if (config.fault === null) return noFaults;
  const [name = '', count = '1'] = config.fault.split(':');
  if (isFaultPoint(name) && /^[1-9]\d*$/.test(count)) return killAt(name, Number(count));
  throw new OutliveError(
    'usage',
    `OUTLIVE_FAULT is "${config.fault}", which names no fault point.`,
  );
}

/** Resolves with the signal that asks the daemon to end. */
function termination(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, resolve);
  });
}

async function run(config: Config, log: Logger): Promise<void> {
  const notifier = createNotifier({
    socket: config.notifySocket,
    report: (problem) => log.warn({ problem }, 'notify'),
  });
  const ended = termination();
  const daemon: Daemon = await startDaemon({
    config,
    log,
    fault: armedFault(config),
    entropy: systemEntropy,
    onServing: () => {
      log.info('serving');
      void notifier.ready(`workspace ${config.workspace}`);
    },
  });
  await notifier.ready(
    daemon.refusal ? `refusing: ${daemon.refusal.code}` : `workspace ${config.workspace}`,
  );
  log.info({ version: VERSION, workspace: config.workspace }, 'ready');
  const why = await Promise.race([ended, daemon.lost]);
  log.info({ why: why instanceof Error ? why.message : why }, 'stopping; attempts run on');
  await notifier.stopping('stopping; attempts run on');
  await daemon.close();
  log.info('stopped');
  if (why instanceof Error) throw why;
}

/** One sentence for a person on stderr, whatever the log's form. */
function report(error: unknown): number {
  if (error instanceof OutliveError) {
    process.stderr.write(`outlived: ${error.code}: ${error.message}\n`);
    return error.exit;
  }
  process.stderr.write(
    `outlived: internal: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  );
  return EXIT.failed;
}

async function main(): Promise<number> {
  try {
    const values = readArguments(process.argv.slice(2));
    if (values.help || values.version) {
      process.stdout.write(values.help ? HELP : `${VERSION}\n`);
      return EXIT.ok;
    }
    const config = loadConfig(process.env, { workspace: values.workspace });
    const log = pino({ level: config.logLevel, base: { workspace: config.workspace } });
    await run(config, log);
    return EXIT.ok;
  } catch (error) {
    return report(error);
  }
}

// Whatever is still open has nothing left to say; a start that failed must end, by its code.
process.exit(await main());
