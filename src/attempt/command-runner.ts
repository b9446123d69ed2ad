/** Runs a plain command: its output as deltas and logs, its exit status as the verdict. */
import path from 'node:path';
import { ATTEMPT_FILES } from '../domain/attempt-files.ts';
import { Capture } from './capture.ts';
import { Budget, within } from './clock.ts';
import type { CommandEnd } from './event-data.ts';
import { OutputBudget } from './output-budget.ts';
import { drainOutput } from './output-drain.ts';
import { readOutput } from './output-stream.ts';
import {
  isMissing,
  type Program,
  type ProgramEnd,
  spawnExitCode,
  startProgram,
} from './program.ts';
import { failure, type RunnerContext, type RunnerResult, success } from './runner.ts';
import type { StopRequest } from './stop.ts';

const LAST_TEXT_BYTES = 4 * 1024;
const SIGN_OF_LIFE_MS = 30_000;
// After SIGKILL only a process in uninterruptible sleep is still there: systemd's business.
const KILLED_MS = 2_000;
const GROUP_MS = 2_000;

/** Runs the command of the launch file to its end. */
export async function runCommand(
  context: RunnerContext,
  argv: readonly string[],
): Promise<RunnerResult> {
  const { launch, emit } = context;
  const started = performance.now();
  const { environment } = context;
  // In a nest it would be nsenter that says so, as the exit status of something that ran.
  if (context.nest && isMissing(argv[0] ?? '', { cwd: launch.cwd, environment })) {
    const result = couldNotStart(argv, 'ENOENT');
    emit('failed', endOf(result, started));
    return result;
  }
  const out = openCapture(context, ATTEMPT_FILES.stdout);
  const err = openCapture(context, ATTEMPT_FILES.stderr);
  const enter = context.nest?.enter ?? [];
  const program = startProgram([...enter, ...argv], {
    cwd: launch.cwd,
    environment,
    stdin: 'ignore',
    umask: launch.umask,
  });
  if (program.pid !== 0) emit('started', { runner: 'command', pid: program.pid, argv });
  const flush = readOutputs(context, program, out, err);
  try {
    const ended = await untilEnd(context, program);
    const drained = await drainOutput(program.child, program.closed, () => out.seen + err.seen);
    flush();
    if (drained === 'held') sayHeld(context);
    const result = conclude(context.stop.request, ended, argv, out, err);
    const end = endOf(result, started);
    const { code: _code, message: _message, ...facts } = end;
    if (result.verdict === 'ok') emit('succeeded', facts);
    else emit('failed', end);
    return result;
  } finally {
    out.finish();
    err.finish();
  }
}

function endOf(
  { exitCode, signal, code, message }: RunnerResult,
  started: number,
): CommandEnd & { code: string; message: string } {
  const durationMs = Math.round(performance.now() - started);
  return { exitCode, signal, durationMs, code: code ?? '', message: message ?? '' };
}

function couldNotStart([program = '']: readonly string[], error: string): RunnerResult {
  const message = `${program} could not be started: ${error}`;
  return failure('spawn_error', message, { exitCode: spawnExitCode(error) });
}

function openCapture(
  { launch, attemptDirectory, redact, warn }: RunnerContext,
  name: string,
): Capture {
  const limit = launch.captureBytes;
  const file = path.join(attemptDirectory, name);
  return new Capture({ file, limit, head: Math.floor(limit / 2), redact, warn });
}

function readOutputs(
  context: RunnerContext,
  program: Program,
  out: Capture,
  err: Capture,
): () => void {
  const { stdout, stderr } = program.child;
  const idle = context.launch.timeouts.idleTimeoutMs;
  const budget = new OutputBudget(context.emit, Math.min(SIGN_OF_LIFE_MS, idle / 4));
  const flushes = [
    stdout && readOutput(stdout, out, context.redact, (text) => budget.delta('stdout_delta', text)),
    stderr && readOutput(stderr, err, context.redact, (text) => budget.delta('stderr_delta', text)),
  ];
  return () => {
    for (const flush of flushes) flush?.();
  };
}

async function untilEnd({ stop }: RunnerContext, program: Program): Promise<ProgramEnd> {
  const first = await Promise.race([program.ended, stop.turned]);
  return 'by' in first ? stopCommand(program, first.graceMs) : first;
}

/** SIGTERM to the group, SIGKILL when the grace is over. */
export async function stopCommand(program: Program, graceMs: number): Promise<ProgramEnd> {
  const budget = new Budget(graceMs);
  program.killGroup('SIGTERM');
  let end = await within(program.ended, budget.until(1));
  // Others of the group may still be ending: they are gone when nobody holds the output.
  if (end !== 'late') await within(program.closed, Math.min(budget.until(1), GROUP_MS));
  program.killGroup('SIGKILL');
  if (end === 'late') end = await within(program.ended, KILLED_MS);
  return end === 'late' ? { exitCode: null, signal: 'SIGKILL', error: null } : end;
}

function sayHeld({ emit }: RunnerContext): void {
  emit('progress', {
    kind: 'output_held',
    message:
      'It ended, but something it left behind still holds its output; that is no longer read',
  });
}

function conclude(
  stop: StopRequest | null,
  { exitCode, signal, error }: ProgramEnd,
  argv: readonly string[],
  out: Capture,
  err: Capture,
): RunnerResult {
  const program = argv[0] ?? '';
  const text = out.seen > 0 ? out.tailText(LAST_TEXT_BYTES) : err.tailText(LAST_TEXT_BYTES);
  const facts = { text, exitCode, signal };
  if (error !== null) return couldNotStart(argv, error);
  if (stop !== null) return failure(stop.code ?? 'aborted', stop.message, facts);
  if (signal !== null) return failure('killed', `${program} was killed by ${signal}`, facts);
  if (exitCode === 0) return success(facts);
  return failure('exit_code', `${program} exited with status ${exitCode}`, facts);
}
