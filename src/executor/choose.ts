/**
 * Which executor a daemon starts attempts on. Chosen once, at its start, before anything
 * was sent: a start that may have happened through systemd never comes here.
 */
import { OutliveError } from '../domain/errors.ts';
import type { Executor } from './port.ts';
import {
  type ChosenExecutor,
  type ExecutorKind,
  type RoutedOptions,
  routeExecutors,
} from './routed.ts';

export interface ChooseOptions
  extends Pick<RoutedOptions, 'systemd' | 'direct' | 'executorOf' | 'report' | 'managed'> {
  /** OUTLIVE_EXECUTOR. */
  readonly want: 'auto' | ExecutorKind;
  /** Whether attempts of this executor are not over yet. */
  readonly owed: (kind: ExecutorKind) => boolean;
}

/** Why it cannot be reached; null when it can. @throws what is not about reaching it. */
async function unreachable(systemd: Executor): Promise<OutliveError | null> {
  try {
    await systemd.connect();
    return null;
  } catch (error) {
    if (error instanceof OutliveError && error.code === 'no_user_manager') return error;
    throw error;
  }
}

/**
 * Connects what there is and chooses. A daemon that a service manager started and waits for
 * takes the direct executor only when told to: it rather fails, and is started again. The other one is kept for attempts that it started.
 * @throws OutliveError `no_user_manager` when systemd is wanted or neither can be used.
 */
export async function chooseExecutor(options: ChooseOptions): Promise<ChosenExecutor> {
  const { want, systemd, direct, owed, managed } = options;
  const wantsSystemd = want !== 'direct' || owed('systemd');
  const missing = wantsSystemd ? await unreachable(systemd) : null;
  const systemdIsUp = wantsSystemd && missing === null;
  if (missing && (want === 'systemd' || (want === 'auto' && managed))) throw missing;
  const primary = want !== 'direct' && systemdIsUp ? 'systemd' : 'direct';
  if (primary === 'direct') {
    await direct.connect().catch((error: Error) => {
      throw new OutliveError(
        'no_user_manager',
        missing ? `${missing.message} ${error.message}` : error.message,
        { cause: error },
      );
    });
  }
  return routeExecutors({
    ...options,
    primary,
    systemdIsUp,
    reason: missing?.message.replace(/\.$/, '') ?? null,
    systemdIsOwed: () => owed('systemd'),
  });
}
