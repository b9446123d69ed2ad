#!/usr/bin/env node
/** outlived: the daemon of one workspace. */
import { parseArgs } from 'node:util';
import type { Logger } from 'pino';
import pino from 'pino';
import { refuseWaiting } from './api/handed-over.ts';
import type { Daemon } from './compose.ts';
import { startDaemon, systemEntropy } from './compose.ts';
import type { Config } from './config.ts';
import { loadConfig } from './config.ts';
import { EXIT, OutliveError } from './domain/errors.ts';
import { stopDeadlineMs } from './domain/shutdown.ts';
import type { Faults } from './supervisor/faults.ts';
import { isFaultPoint, killAt, noFaults } from './supervisor/faults.ts';
import { type HandedOver, NOTHING_HANDED_OVER, takeListenFds } from './systemd/listen-fds.ts';
import { createNotifier, type Notifier } from './systemd/notify.ts';
import { systemTimers } from './systemd/timers.ts';
import { startWatchdog } from './systemd/watchdog.ts';
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

/** The unit's status in one line; it reads the store. */
function look(daemon: Daemon, { workspace }: Config): string {
  if (daemon.refusal) return `refusing: ${daemon.refusal.code}`;
  const { problems, activeAttempts } = daemon.runtime();
  if (problems.length > 0) return `degraded: ${problems.join('; ')}`;
  return `workspace ${workspace}, ${activeAttempts} running`;
}

async function run(config: Config, log: Logger, handedOver: HandedOver): Promise<void> {
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
    handedOver,
    onServing: () => {
      log.info('serving');
      void notifier.ready(`workspace ${config.workspace}`);
    },
  });
  await notifier.ready(
    daemon.refusal ? `refusing: ${daemon.refusal.code}` : `workspace ${config.workspace}`,
  );
  let end: string | null = null;
  // Fed to the very end: a stop may take longer than the watchdog waits, and has a deadline of its own.
  const stopFeeding = feedWatchdog(config, log, notifier, () => end ?? look(daemon, config));
  log.info({ version: VERSION, workspace: config.workspace }, 'ready');
  const why = await Promise.race([ended, daemon.lost]);
  const { mode, graceMs } = daemon.shutdown;
  const suspends = mode === 'suspend';
  end = suspends ? 'stopping; attempts are suspended' : 'stopping; attempts run on';
  log.info({ why: why instanceof Error ? why.message : why }, end);
  await notifier.stopping(end, suspends ? stopDeadlineMs(graceMs) : null);
  await daemon.close();
  stopFeeding();
  log.info('stopped');
  if (why instanceof Error) throw why;
}

function feedWatchdog(
  { watchdogMs }: Config,
  log: Logger,
  notifier: Notifier,
  lookAtItself: () => string,
): () => void {
  if (watchdogMs === null) return () => {};
  return startWatchdog({
    deadlineMs: watchdogMs,
    notifier,
    look: lookAtItself,
    timers: systemTimers,
    report: (problem) => log.error({ problem }, 'watchdog'),
  });
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

/** What makes systemd give up the unit (RestartPreventExitStatus=) is said to who waits for it. */
async function tellWaiting(handedOver: HandedOver, error: unknown): Promise<void> {
  const isForPerson = error instanceof OutliveError && error.exit === EXIT.usage;
  if (!isForPerson || handedOver.api.length + handedOver.http.length === 0) return;
  // The exit status counts more: with another one systemd would try again for ever.
  await refuseWaiting(pino({ level: 'error' }), handedOver, error).catch(() => {});
}

async function main(): Promise<number> {
  let handedOver = NOTHING_HANDED_OVER;
  try {
    const values = readArguments(process.argv.slice(2));
    if (values.help || values.version) {
      process.stdout.write(values.help ? HELP : `${VERSION}\n`);
      return EXIT.ok;
    }
    handedOver = takeListenFds(process.env, process.pid, (problem) =>
      process.stderr.write(`outlived: ${problem}\n`),
    );
    const config = loadConfig(process.env, { workspace: values.workspace });
    const log = pino({ level: config.logLevel, base: { workspace: config.workspace } });
    await run(config, log, handedOver);
    return EXIT.ok;
  } catch (error) {
    const code = report(error);
    await tellWaiting(handedOver, error);
    return code;
  }
}

// Whatever is still open has nothing left to say; a start that failed must end, by its code.
process.exit(await main());
