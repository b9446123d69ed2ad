/** `outlive daemon start`, `stop` and `restart`, also where there is no user manager to ask. */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import path from 'node:path';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { detachedLog, startDetached, stopDetached } from './daemon-detached.ts';
import { type DaemonContext, daemonCommand } from './daemon-host.ts';
import { attemptsText, restart, running, start, stop } from './daemon-start.ts';

type Verb = (context: DaemonContext) => Promise<number>;

/**
 * The verb with systemd; without it where no manager answers, or where the daemon is told
 * to start attempts directly: in a unit of its own they would end with it.
 */
function anywhere(withSystemd: Verb, without: Verb): Verb {
  return async (context) => {
    const { executor } = context.config;
    if (executor === 'direct') return without(context);
    try {
      return await withSystemd(context);
    } catch (error) {
      const isAway = error instanceof OutliveError && error.code === 'no_user_manager';
      if (!isAway || executor === 'systemd') throw error;
      return without(context);
    }
  };
}

export const startAnywhere = anywhere(start, startProcess);
export const stopAnywhere = anywhere(stop, stopProcess);
export const restartAnywhere = anywhere(restart, async (context) => {
  const stopped = await stopProcess(context);
  return stopped === EXIT.ok ? startProcess(context) : stopped;
});

async function startProcess(context: DaemonContext): Promise<number> {
  const { stderr, stdout, config, entries } = context;
  const present = await running(context);
  if (present) {
    await stderr.line(`The daemon of workspace ${config.workspace} is running already.`);
    await stdout.line(`pid     ${present.pid}`);
    return EXIT.ok;
  }
  const main = path.join(entries, 'main.js');
  await access(main, constants.R_OK).catch(() => {
    throw new OutliveError('usage', `${main} is missing. Build it first: ops/scripts/setup`);
  });
  const started = await startDetached(context, main, () => running(context));
  if ('why' in started) {
    await stderr.line(`outlive: The daemon did not come up (${started.why}). The end of its log:`);
    for (const line of started.log) await stderr.line(`  ${line}`);
    return EXIT.failed;
  }
  const look = daemonCommand(context, 'status');
  await stderr.line(`It runs without systemd, which keeps less than it would; see: ${look}`);
  await stdout.line(`pid     ${started.pid}`);
  await stdout.line(`socket  ${started.socket}`);
  await stdout.line(`log     ${detachedLog(context)}`);
  return EXIT.ok;
}

async function stopProcess(context: DaemonContext): Promise<number> {
  const { stderr } = context;
  const present = await running(context);
  if (!present) {
    await stderr.line('No daemon was running.');
    return EXIT.ok;
  }
  if (!(await stopDetached(present))) {
    await stderr.line(
      `outlive: The daemon (pid ${present.pid}) is still ending. Look at: ${detachedLog(context)}`,
    );
    return EXIT.failed;
  }
  await stderr.line(`The daemon is stopped. ${attemptsText(present.activeAttempts)}`);
  return EXIT.ok;
}
