/** `outlive daemon start`, `stop` and `restart`. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import path from 'node:path';
import type { RuntimeView } from '../api/schemas.ts';
import { unreachableReason } from '../client/transport.ts';
import type { Config } from '../config.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { daemonUnitName } from '../domain/names.ts';
import { stopDeadlineMs } from '../domain/shutdown.ts';
import { DAEMON_NODE_FLAGS } from '../layout.ts';
import { daemonEnvironment, writeCredentials } from './daemon-environment.ts';
import {
  type DaemonContext,
  daemonCommand,
  type UnitHost,
  type UnitState,
  withHost,
} from './daemon-host.ts';
import { lastJournalLines } from './daemon-journal.ts';

/** The daemon that answers, null when none listens. Any other silence is an error. */
export async function running({ client }: DaemonContext): Promise<RuntimeView | null> {
  try {
    return await client.runtime();
  } catch (error) {
    const reason = unreachableReason(error);
    // A daemon that dropped the connection was just ending.
    if (reason === 'absent' || reason === 'lost') return null;
    throw error;
  }
}

export async function start(context: DaemonContext): Promise<number> {
  const { stderr, config } = context;
  // Asked by a connection, an installed socket would start it: and then it runs "already".
  if (await isAsleep(context)) return withHost(context, (host) => startUnit(context, host));
  const present = await running(context);
  if (present) {
    await stderr.line(`The daemon of workspace ${config.workspace} is running already.`);
    await describe(context, present, await unitInUse(context));
    return EXIT.ok;
  }
  return withHost(context, (host) => startUnit(context, host));
}

/** Its sockets are open and it is not up; false also where there is no user manager to ask. */
function isAsleep(context: DaemonContext): Promise<boolean> {
  const { workspace } = context.config;
  return withHost(context, async (host) => {
    return (await host.isListening(workspace)) && (await host.state(workspace)).active !== 'active';
  }).catch(() => false);
}

async function unitInUse(context: DaemonContext): Promise<string> {
  const { workspace } = context.config;
  const state = await withHost(context, (host) => host.state(workspace)).catch(() => null);
  return state?.unit ?? daemonUnitName(workspace);
}

async function startUnit(context: DaemonContext, host: UnitHost): Promise<number> {
  const { config, env, client } = context;
  const main = path.join(context.entries, 'main.js');
  await access(main, constants.R_OK).catch(() => {
    throw new OutliveError('usage', `${main} is missing. Build it first: ops/scripts/setup`);
  });
  if (await host.isInstalled(config.workspace)) await sayWhatStaysHere(context);
  const files = await writeCredentials(config);
  let state: UnitState;
  try {
    state = await host.start({
      workspace: config.workspace,
      argv: [process.execPath, ...DAEMON_NODE_FLAGS, main, '--workspace', config.workspace],
      environment: daemonEnvironment(config, env),
      credentials: files.credentials,
      umask: process.umask(),
      stopMs: stopMs(config),
    });
  } finally {
    await files.remove();
  }
  if (state.active !== 'active') return startFailed(context, state);
  await describe(context, await client.runtime(), state.unit);
  return EXIT.ok;
}

/** An installed unit has an environment of its own, so keys of this shell do not reach it. */
async function sayWhatStaysHere({ config, stderr }: DaemonContext): Promise<void> {
  const names = Object.keys(config.keys);
  if (names.length === 0) return;
  const file = path.join(path.dirname(config.directories.configFile), 'daemon.env');
  await stderr.line(
    `${names.join(', ')} of this shell is not handed to the installed unit; it reads ${file}.`,
  );
}

async function startFailed(context: DaemonContext, state: UnitState): Promise<number> {
  const { stderr } = context;
  const { unit } = state;
  const what =
    state.active === 'activating'
      ? 'is not ready yet, and was given enough time'
      : `did not come up (${state.active}, ${state.result})`;
  await stderr.line(`outlive: ${unit} ${what}. The end of its log:`);
  for (const line of await lastJournalLines(unit, 20)) await stderr.line(`  ${line}`);
  await stderr.line(`Mend what it says, then try again: ${daemonCommand(context, 'start')}`);
  return EXIT.failed;
}

async function describe(
  { stdout }: DaemonContext,
  runtime: RuntimeView,
  unit: string,
): Promise<void> {
  await stdout.line(`pid     ${runtime.pid}`);
  await stdout.line(`socket  ${runtime.socket}`);
  await stdout.line(`unit    ${unit}`);
}

export async function stop(context: DaemonContext): Promise<number> {
  const { stderr } = context;
  const stopped = await stopUnit(context);
  if (stopped === 'none') await stderr.line('No daemon was running.');
  else if (stopped !== 'refused') {
    await stderr.line(`The daemon is stopped. ${attemptsText(stopped.attempts)}`);
  }
  if (stopped === 'refused') return EXIT.failed;
  await stderr.line(`Start it with: ${daemonCommand(context, 'start')}`);
  return EXIT.ok;
}

export async function restart(context: DaemonContext): Promise<number> {
  const { workspace } = context.config;
  const state = await withHost(context, async (host) => {
    return (await host.isListening(workspace)) ? restartBehindSockets(context, host) : null;
  });
  if (state !== null) return state;
  const stopped = await stopUnit(context);
  if (stopped === 'refused') return EXIT.failed;
  if (stopped !== 'none') await context.stderr.line(`Stopped. ${attemptsText(stopped.attempts)}`);
  return start(context);
}

/** The sockets stay: whoever connects meanwhile waits for the new daemon. */
async function restartBehindSockets(context: DaemonContext, host: UnitHost): Promise<number> {
  const { client, stderr, config } = context;
  const runs = (await host.state(config.workspace)).active === 'active';
  const present = runs ? await client.runtime().catch(() => null) : null;
  const state = await host.restart(config.workspace, stopMs(config));
  if (state.active !== 'active') return startFailed(context, state);
  await stderr.line(`Restarted. ${attemptsText(present?.activeAttempts ?? null)}`);
  await describe(context, await client.runtime(), state.unit);
  return EXIT.ok;
}

/** `attempts` is null where the daemon did not answer any more. */
type Stopped = 'none' | 'refused' | { readonly attempts: number | null };

/** Stops the unit and returns once nothing of it runs; says on stderr why it cannot. */
async function stopUnit(context: DaemonContext): Promise<Stopped> {
  const { client, stderr } = context;
  // Silence of any kind is fine: a daemon that hangs is stopped all the same.
  const ask = () => client.runtime().catch(() => null);
  const { present, state } = await withHost(context, (host) => stopIn(context, host, ask));
  if (state === null) {
    if (!present) return 'none';
    const unit = daemonUnitName(context.config.workspace);
    await stderr.line(
      `outlive: The daemon (pid ${present.pid}) does not run in ${unit}, so it was started some other way. Stop it with: kill ${present.pid}`,
    );
    return 'refused';
  }
  if (isDown(state)) return { attempts: present?.activeAttempts ?? null };
  await stderr.line(
    `outlive: ${state.unit} is still ${state.active}. Look at: ${daemonCommand(context, 'logs')}`,
  );
  return 'refused';
}

/** `state` is null where no unit of the daemon ran. */
async function stopIn(
  { config }: DaemonContext,
  host: UnitHost,
  ask: () => Promise<RuntimeView | null>,
): Promise<{ present: RuntimeView | null; state: UnitState | null }> {
  const { workspace } = config;
  const runs = !isDown(await host.state(workspace));
  if (await host.isListening(workspace)) {
    // Asked while it is down, its socket would start it.
    const present = runs ? await ask() : null;
    const state = await host.stop(workspace, stopMs(config));
    return { present, state: runs ? state : null };
  }
  const present = await ask();
  return { present, state: runs ? await host.stop(workspace, stopMs(config)) : null };
}

/** By our own configuration, which the daemon's is like unless a person made it another one. */
const stopMs = ({ shutdown }: Config): number => stopDeadlineMs(shutdown.graceMs);

const isDown = ({ active }: UnitState): boolean => active === 'inactive' || active === 'failed';

export function attemptsText(count: number | null): string {
  if (count === 0) return 'No attempt was running.';
  if (count === 1) return '1 running attempt goes on; the next daemon takes it up again.';
  const which = count === null ? 'Running attempts' : `${count} running attempts`;
  return `${which} go on; the next daemon takes them up again.`;
}
