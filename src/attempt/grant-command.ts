/** Runs the commands that a person approved after their attempt was gone, each once. */
import type { Grant } from '../domain/decisions.ts';
import { ceilCharacter } from './bounded-text.ts';
import { within } from './clock.ts';
import { stopCommand } from './command-runner.ts';
import type { Fence } from './fence.ts';
import type { GrantResult } from './grants.ts';
import { numberOf, objectOf, stringOf } from './json.ts';
import { drainOutput } from './output-drain.ts';
import { type Program, type ProgramEnd, startProgram } from './program.ts';
import type { RunnerContext } from './runner.ts';
import { TailRing } from './tail-ring.ts';

/** What Pi keeps of a command's output. */
const OUTPUT_BYTES = 50 * 1024;
const OUTPUT_LINES = 2_000;
/** A timer of Node's knows no more, milliseconds. */
const MAX_TIMEOUT_MS = 2_147_483_647;
/** After SIGKILL only a process in uninterruptible sleep is still there. */
const KILLED_MS = 2_000;

/** One after the other, in the order they were asked for. A stop ends the one that runs and all that follow. */
export async function runGrants(
  context: RunnerContext,
  fence: Fence,
  grants: readonly Grant[],
  onOutput: (grant: Grant, text: string) => void,
): Promise<readonly GrantResult[]> {
  const results: GrantResult[] = [];
  for (const grant of grants) {
    if (context.stop.request !== null) break;
    const result = await runGrant(context, fence, grant, (text) => onOutput(grant, text));
    if (result === null) break;
    results.push(result);
  }
  return results;
}

/** Null when its start could not be written: then it did not run. */
async function runGrant(
  context: RunnerContext,
  fence: Fence,
  grant: Grant,
  onOutput: (text: string) => void,
): Promise<GrantResult | null> {
  const { toolCallId, tool, fingerprint, approvalId } = grant;
  const call = fence.told(toolCallId, tool, grant.arguments);
  if (!fence.startGranted(call, fingerprint, approvalId)) return null;
  const began = performance.now();
  const { isError, text } = await runBash(context, grant, onOutput);
  const durationMs = Math.round(performance.now() - began);
  fence.endGranted({ toolCallId, tool, isError, result: text, durationMs });
  return { grant, isError, text };
}

async function runBash(
  context: RunnerContext,
  grant: Grant,
  onOutput: (text: string) => void,
): Promise<Omit<GrantResult, 'grant'>> {
  const { command, timeout } = objectOf(grant.arguments);
  const { nest, environment, launch } = context;
  const argv = [...(nest?.enter ?? []), 'bash', '-c', stringOf(command) ?? ''];
  const { umask } = launch;
  const program = startProgram(argv, { cwd: grant.cwd, environment, stdin: 'ignore', umask });
  const output = new Output(program, onOutput);
  const end = await untilEnd(context, program, numberOf(timeout));
  if (end !== 'timeout' && end.error !== null) {
    return { isError: true, text: `bash could not be started in ${grant.cwd}: ${end.error}` };
  }
  await drainOutput(program.child, program.closed, () => output.seen);
  const status = statusOf(context, end, timeout);
  return { isError: status !== null, text: output.text(status) };
}

async function untilEnd(
  { stop }: RunnerContext,
  program: Program,
  seconds: number | null,
): Promise<ProgramEnd | 'timeout'> {
  const ms = Math.min(seconds === null || seconds <= 0 ? Infinity : seconds * 1000, MAX_TIMEOUT_MS);
  const timer = Promise.withResolvers<'timeout'>();
  const timeout = Number.isFinite(ms) ? setTimeout(() => timer.resolve('timeout'), ms) : undefined;
  const first = await Promise.race([program.ended, stop.turned, timer.promise]);
  clearTimeout(timeout);
  if (first === 'timeout') {
    program.killGroup('SIGKILL');
    await within(program.ended, KILLED_MS);
    return 'timeout';
  }
  return 'by' in first ? stopCommand(program, first.graceMs / 2) : first;
}

/** Why it failed, in the words that Pi uses; null when it did not. */
function statusOf(
  { stop }: RunnerContext,
  end: ProgramEnd | 'timeout',
  timeout: unknown,
): string | null {
  if (end === 'timeout') return `Command timed out after ${String(timeout)} seconds`;
  if (stop.request !== null) return 'Command aborted';
  if (end.signal !== null) return `Command was ended by ${end.signal}`;
  return end.exitCode === 0 ? null : `Command exited with code ${end.exitCode}`;
}

/** The end of what a command prints, as much as Pi would keep. */
class Output {
  readonly #tail = new TailRing(OUTPUT_BYTES);
  /** Bytes that came. */
  seen = 0;

  constructor({ child }: Program, onOutput: (text: string) => void) {
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('error', () => {});
      stream?.on('data', (chunk: Buffer) => {
        this.seen += chunk.length;
        this.#tail.push(chunk);
        onOutput(this.#kept());
      });
    }
  }

  text(status: string | null): string {
    const kept = this.#kept();
    const lines = kept.split('\n');
    // The last one is empty where the output ends in a line end.
    const surplus = lines.length - OUTPUT_LINES - (kept.endsWith('\n') ? 1 : 0);
    const shown = surplus > 0 ? lines.slice(surplus).join('\n') : kept;
    const cut = surplus > 0 || this.seen > OUTPUT_BYTES;
    const note = cut ? `[Only the end of ${this.seen} bytes is shown]` : '';
    return [shown || '(no output)', note, status ?? ''].filter((part) => part !== '').join('\n\n');
  }

  #kept(): string {
    const bytes = this.#tail.bytes();
    return bytes.toString('utf8', this.seen > OUTPUT_BYTES ? ceilCharacter(bytes, 0) : 0);
  }
}
