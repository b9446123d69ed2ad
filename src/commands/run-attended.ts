/** `outlive run` without --detach: shows the run as it goes and ends as it ends. */
import type { WorkUnitView } from '../api/schemas.ts';
import type { Started } from '../client/client.ts';
import { floorOf } from '../client/problem.ts';
import { OutliveError } from '../domain/errors.ts';
import { TERMINAL_STATUSES } from '../domain/work-unit.ts';
import { type Context, workspaceFlag } from './context.ts';
import { outcomeExitCode } from './exit-code.ts';
import { dieOfInterrupt, type Interrupts } from './interrupt.ts';
import type { RunOptions } from './run-input.ts';
import { RunOutcome } from './run-outcome.ts';
import { runSummary } from './run-summary.ts';
import { createView, type RunView } from './run-view.ts';
import { sanitize } from './sanitize.ts';

/** Follows the work unit to its end; the exit status is its outcome. */
export async function attend(
  context: Context,
  { workUnit, created }: Started,
  options: RunOptions,
  interrupts: Interrupts,
): Promise<number> {
  // The exit status is still owed when nobody reads the output any more.
  context.stdout.outliveReader();
  const view = createView(context, workUnit, options.json === true);
  const outcome = new RunOutcome();
  const leave = new AbortController();
  interrupts.listen((count) => {
    if (options.cancelOnInterrupt && count === 1) void cancel(context, workUnit, view);
    else leave.abort();
  });
  try {
    await follow(context, workUnit, leave.signal, view, outcome);
  } catch (error) {
    // The run of a key that was used long ago: how it ended is all that is left of it.
    if (created || floorOf(error) === null || !TERMINAL_STATUSES.has(workUnit.status)) throw error;
    await view.say(`It is ${workUnit.status}; its events were removed by retention.`);
    return outcomeExitCode(workUnit.status, workUnit.errorCode, workUnit.outcome?.state ?? null);
  } finally {
    await view.close();
  }
  const isOver = outcome.status !== 'running' && outcome.left?.state !== 'pending';
  if (leave.signal.aborted && !isOver) return leaveRunning(context, workUnit, options);
  return conclude(context, workUnit, view, outcome, options);
}

async function follow(
  { client }: Context,
  workUnit: WorkUnitView,
  signal: AbortSignal,
  view: RunView,
  outcome: RunOutcome,
): Promise<void> {
  const events = client.followEvents(workUnit.id, {
    signal,
    onConnection: (state) => view.connection(state),
  });
  try {
    for await (const event of events) {
      outcome.push(event);
      await view.event(event);
    }
  } catch (error) {
    if (!(error instanceof OutliveError) || error.code !== 'daemon_unreachable') throw error;
    const detail = `${error.message} The run ${workUnit.handle} goes on without it.`;
    throw new OutliveError(error.code, detail, { extra: error.extra, cause: error });
  }
}

/** The run, or what verifies it once it has ended. */
async function cancelWhatRuns(client: Context['client'], id: string): Promise<void> {
  const reason = 'Ctrl-C in outlive run';
  try {
    await client.cancelWorkUnit(id, { reason });
  } catch (error) {
    if (!(error instanceof OutliveError) || error.code !== 'state_conflict') throw error;
    const { outcome } = await client.getWorkUnit(id);
    if (outcome?.state !== 'pending' || outcome.verify === null) throw error;
    await client.cancelWorkUnit(outcome.verify, { reason });
  }
}

async function cancel(
  { client }: Context,
  { id, handle }: WorkUnitView,
  view: RunView,
): Promise<void> {
  try {
    await view.say(`Cancelling ${handle}; Ctrl-C again leaves it to itself.`);
    await cancelWhatRuns(client, id);
  } catch (error) {
    // Too late is no mistake: the end is on its way over the stream.
    if (error instanceof OutliveError && error.code === 'state_conflict') return;
    const said = error instanceof Error ? error.message : String(error);
    await view.say(`It could not be cancelled: ${sanitize(said)} Ctrl-C again leaves it running.`);
  }
}

async function leaveRunning(
  { stderr, config }: Context,
  { handle }: WorkUnitView,
  { cancelOnInterrupt }: RunOptions,
): Promise<number> {
  const command = `outlive cancel ${handle}${workspaceFlag(config.workspace)}`;
  await stderr.line(
    cancelOnInterrupt
      ? `detached before its end. See what became of it with: outlive show ${handle}${workspaceFlag(config.workspace)}`
      : `detached; it runs on. Cancel with: ${command}`,
  );
  return dieOfInterrupt();
}

/** All of it is in the events: the daemon may be gone again by now. */
async function conclude(
  { stdout, stderr, config }: Context,
  workUnit: WorkUnitView,
  view: RunView,
  outcome: RunOutcome,
  { json }: RunOptions,
): Promise<number> {
  const text = workUnit.runnerId === 'pi' ? (outcome.lastWord?.text ?? '') : '';
  if (text !== '' && !view.hasShown(text)) {
    const printed = stdout.isTerminal ? sanitize(text) : text;
    await stdout.write(printed.endsWith('\n') ? printed : `${printed}\n`);
  }
  if (!json) {
    const lines = runSummary(workUnit.handle, outcome, config.workspace);
    for (const line of lines) await stderr.line(line);
  }
  return outcomeExitCode(outcome.status, outcome.errorCode, outcome.left?.state ?? null);
}
