/** The executor of a daemon: both are joined here, and which one starts new attempts is chosen. */
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { Entropy } from '../domain/ids.ts';
import { chooseExecutor } from '../executor/choose.ts';
import { createDirectExecutor } from '../executor/direct.ts';
import type { ChosenExecutor } from '../executor/routed.ts';
import { exitRecordScript, keeperScript } from '../layout.ts';
import type { Store } from '../store/store.ts';
import { createSystemdExecutor } from '../systemd/executor.ts';

/**
 * The executor of this daemon, connected; says in the log what is weaker than it might be.
 * @throws OutliveError `no_user_manager`.
 */
export async function connectExecutor(
  { config, log }: { readonly config: Config; readonly log: Logger },
  entropy: Entropy,
  { executors }: Store,
): Promise<ChosenExecutor> {
  const { workspace, directories } = config;
  const common = { workspace, exits: directories.exits, exitRecordScript: exitRecordScript() };
  const executor = await chooseExecutor({
    want: config.executor,
    managed: config.notifySocket !== null,
    systemd: createSystemdExecutor({
      ...common,
      busAddress: config.busAddress,
      userRuntime: directories.userRuntime,
      entropy,
      report: (problem) => log.warn({ problem }, 'systemd'),
    }),
    direct: createDirectExecutor({
      ...common,
      directory: directories.direct,
      runtimeDirectory: directories.runtime,
      keeperScript: keeperScript(),
      searchPath: config.runnerEnvironment['PATH'] ?? '',
      report: (problem) => log.warn({ problem }, 'direct executor'),
    }),
    executorOf: (unit) => executors.of(unit),
    owed: (kind) => executors.isOwed(kind),
    report: (problem) => log.warn({ problem }, 'executor'),
  });
  for (const problem of executor.problems) log.warn({ problem }, 'executor');
  return executor;
}
