/** `outlive daemon status`. */
import type { RuntimeView } from '../api/schemas.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { type DaemonContext, daemonCommand, withHost } from './daemon-host.ts';
import { formatDuration } from './duration.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

export interface StatusOptions {
  readonly json?: boolean;
}

/** The state of the daemon that answers; without one, what systemd knows of its unit. */
export async function status(context: DaemonContext, { json }: StatusOptions): Promise<number> {
  const { client, stdout, config } = context;
  const runtime = await client.runtime().catch(async (error: unknown) => {
    throw await withUnitState(context, error);
  });
  // What was found at its start; a daemon that says so little else must not fail over it.
  const recovery = await client.supervisor().then(
    (view) => view.recovery,
    () => null,
  );
  if (json) await stdout.json({ workspace: config.workspace, ...runtime, recovery });
  else {
    for (const line of statusLines(runtime, Date.now(), recovery)) await stdout.line(line);
  }
  return EXIT.ok;
}

async function withUnitState(context: DaemonContext, error: unknown): Promise<unknown> {
  if (!(error instanceof OutliveError) || error.code !== 'daemon_unreachable') return error;
  const state = await withHost(context, (host) => host.state(context.config.workspace)).catch(
    () => null, // The answer is "unreachable" with or without a user manager to ask.
  );
  if (state === null || state.active === 'inactive') return error;
  const why = state.active === 'failed' ? ` (${state.result})` : '';
  const detail = `${error.message} Its unit ${state.unit} is ${state.active}${why}; see: ${daemonCommand(context, 'logs')}`;
  return new OutliveError(error.code, detail, { extra: error.extra, cause: error });
}

/** Parts of the stored report that are worth a word, with that word. */
const RECOVERED: Readonly<Record<string, string>> = {
  reattached: 're-attached',
  settled: 'settled',
  orphans: 'without an attempt',
  releasedHolders: 'gave back what they held',
  foreignUnits: 'foreign units',
  failed: 'failed steps, tried again by the census',
};

/** The recovery at the start in a line; null when it found nothing. */
function recoveryText(report: Readonly<Record<string, unknown>> | null): string | null {
  const told = Object.entries(RECOVERED).flatMap(([name, words]) => {
    const found = report?.[name];
    return Array.isArray(found) && found.length > 0 ? [`${found.length} ${words}`] : [];
  });
  return told.length === 0 ? null : told.join(', ');
}

/** The human form. `now` is milliseconds since the epoch. */
export function statusLines(
  runtime: RuntimeView,
  now: number,
  recovery: Readonly<Record<string, unknown>> | null = null,
): string[] {
  const { host, port, problems, tookOver } = runtime;
  const recovered = recoveryText(recovery);
  const up = formatDuration(now - Date.parse(runtime.startedAt));
  return table(
    [
      ['workspace', runtime.workspaceId],
      ['status', runtime.status],
      ...problems.map((problem) => ['problem', problem]),
      ['pid', String(runtime.pid)],
      ['up', `${up} (since ${runtime.startedAt})`],
      ['instance', runtime.runtimeInstanceId],
      ...(tookOver
        ? [
            [
              'took over',
              `from pid ${tookOver.previousPid} (instance ${tookOver.previousInstanceId}), which died without a word`,
            ],
          ]
        : []),
      ...(recovered === null ? [] : [['recovery', recovered]]),
      ['version', `${runtime.version}, store schema ${runtime.schemaVersion}`],
      ['executor', runtime.executor],
      ['socket', runtime.socket],
      ['port', port === null ? 'none' : `${host ?? '127.0.0.1'}:${port}`],
      ['attempts', `${runtime.activeAttempts} running`],
    ].map(([name = '', value = '']) => [name, sanitizeLine(value)]),
  );
}
