/** The sandbox of a daemon's attempts: what is configured, what is covered, what a probe found. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { SandboxAbility } from '../domain/sandbox.ts';
import type { ExecutorKind } from '../executor/routed.ts';
import { type ProbeRunner, trySandbox } from '../sandbox-trial.ts';
import type { SandboxSettings } from '../supervisor/sandbox-settings.ts';
import { DaemonUnits } from '../systemd/daemon-unit.ts';
import { PROBE_MS } from '../systemd/probe-unit.ts';
import { sandboxPlaces } from './sandbox-places.ts';

/** In a unit of its own, over a connection of its own: the daemon's is busy taking up what runs. */
const inUnit =
  (busAddress: string): ProbeRunner =>
  async (argv, hidden) => {
    const units = await DaemonUnits.connect(busAddress);
    try {
      return await units.runProbe(argv, hidden);
    } finally {
      units.close();
    }
  };

const plainly =
  (environment: Readonly<Record<string, string>>): ProbeRunner =>
  async ([program = '', ...args]) => {
    await promisify(execFile)(program, args, {
      env: { PATH: environment['PATH'] ?? '' },
      timeout: PROBE_MS,
      killSignal: 'SIGKILL',
    });
    return null;
  };

/**
 * Begins to try out what can be had, where attempts will start, and does not wait for it: a
 * start of the daemon takes no longer, the first launch may.
 */
export function sandboxSettings(
  config: Config,
  executor: ExecutorKind,
  log: Logger,
): SandboxSettings {
  const { directories, busAddress, runnerEnvironment, sandbox: setting } = config;
  let now: SandboxAbility | null = null;
  // Always the same: a daemon that is killed meanwhile leaves one at most.
  const place = path.join(directories.runtime, 'probe');
  const trial =
    executor === 'systemd'
      ? trySandbox(place, 'unit', inUnit(busAddress))
      : trySandbox(place, 'plain', plainly(runnerEnvironment));
  const found = trial.then((ability) => {
    now = ability;
    if (ability.nest) log.debug({ ability }, 'sandbox');
    else log.warn({ ability }, 'attempts run in less than a nest');
    return ability;
  });
  return { setting, ...sandboxPlaces(config), now: () => now, found };
}
