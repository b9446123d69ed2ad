/** `outlive daemon start`, `stop` and `restart`. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import path from 'node:path';
import type { RuntimeView } from '../api/schemas.ts';
import { unreachableReason } from '../client/transport.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { daemonUnitName } from '../domain/names.ts';
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
  const present = await running(context);
  if (present) {
    await stderr.line(`The daemon of workspace ${config.workspace} is running already.`);
    await describe(context, present);
    return EXIT.ok;
  }
  return withHost(context, (host) => startUnit(context, host));
}

async function startUnit(context: DaemonContext, host: UnitHost): Promise<number> {
  const { config, env, client } = context;
  const main = path.join(context.entries, 'main.js');
  await access(main, constants.R_OK).catch(() => {
    throw new OutliveError('usage', `${main} is missing. Build it first: ops/scripts/setup`);
  });
  const files = await writeCredentials(config);
  let state: UnitState;
  try {
    state = await host.start({
      workspace: config.workspace,
      argv: [process.execPath, ...DAEMON_NODE_FLAGS, main, '--workspace', config.workspace],
      environment: daemonEnvironment(config, env),
      credentials: files.credentials,
      umask: process.umask(),
    });
  } finally {
    await files.remove();
  }
  if (state.active !== 'active') return startFailed(context, state);
  await describe(context, await client.runtime());
  return EXIT.ok;
}

async function startFailed(context: DaemonContext, state: UnitState): Promise<number> {
  const { stderr, config } = context;
  const unit = daemonUnitName(config.workspace);
  const what =
    state.active === 'activating'
      ? 'is not ready yet, and was given enough time'
      : `did not come up (${state.active}, ${state.result})`;
  await stderr.line(`outlive: ${unit} ${what}. The end of its log:`);
  for (const line of await lastJournalLines(unit, 20)) await stderr.line(`  ${line}`);
  await stderr.line(`Mend what it says, then try again: ${daemonCommand(context, 'start')}`);
  return EXIT.failed;
}

async function describe({ stdout, config }: DaemonContext, runtime: RuntimeView): Promise<void> {
  await stdout.line(`pid     ${runtime.pid}`);
  await stdout.line(`socket  ${runtime.socket}`);
  await stdout.line(`unit    ${daemonUnitName(config.workspace)}`);
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
  const stopped = await stopUnit(context);
  if (stopped === 'refused') return EXIT.failed;
  if (stopped !== 'none') await context.stderr.line(`Stopped. ${attemptsText(stopped.attempts)}`);
  return start(context);
}

/** `attempts` is null where the daemon did not answer any more. */
type Stopped = 'none' | 'refused' | { readonly attempts: number | null };

/** Stops the unit and returns once nothing of it runs; says on stderr why it cannot. */
async function stopUnit(context: DaemonContext): Promise<Stopped> {
  const { client, stderr, config } = context;
  const unit = daemonUnitName(config.workspace);
  // A daemon that hangs is stopped all the same, so silence of any kind is fine here.
  const present = await client.runtime().catch(() => null);
  const state = await withHost(context, async (host) => {
    const before = await host.state(config.workspace);
    return isDown(before) ? null : host.stop(config.workspace);
  });
  if (state === null) {
    if (!present) return 'none';
    await stderr.line(
      `outlive: The daemon (pid ${present.pid}) does not run in ${unit}, so it was started some other way. Stop it with: kill ${present.pid}`,
    );
    return 'refused';
  }
  if (isDown(state)) return { attempts: present?.activeAttempts ?? null };
  await stderr.line(
    `outlive: ${unit} is still ${state.active}. Look at: ${daemonCommand(context, 'logs')}`,
  );
  return 'refused';
}

const isDown = ({ active }: UnitState): boolean => active === 'inactive' || active === 'failed';

export function attemptsText(count: number | null): string {
  if (count === 0) return 'No attempt was running.';
  if (count === 1) return '1 running attempt goes on; the next daemon takes it up again.';
  const which = count === null ? 'Running attempts' : `${count} running attempts`;
  return `${which} go on; the next daemon takes them up again.`;
}
