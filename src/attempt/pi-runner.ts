/** Runs one prompt through the Pi CLI: start, wait until ready, prompt, wait until settled, end. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ATTEMPT_FILES, type PiRunnerSpec } from '../domain/attempt-files.ts';
import type { Usage } from '../domain/spool.ts';
import { Capture } from './capture.ts';
import { within } from './clock.ts';
import type { Fence } from './fence.ts';
import { makeDirectory } from './files.ts';
import { runGrants } from './grant-command.ts';
import { GrantBook, type GrantResult } from './grants.ts';
import { type JsonObject, numberOf, objectOf, stringOf } from './json.ts';
import { abortPi, closePi } from './pi-end.ts';
import { usageOf } from './pi-events.ts';
import { PiRecorder } from './pi-recorder.ts';
import { type Answer, PiRpc } from './pi-rpc.ts';
import { classifyError, classifyStartFailure, isLockHeld, verdictOf } from './pi-verdict.ts';
import { piVersion } from './pi-version.ts';
import { type ProgramEnd, spawnExitCode } from './program.ts';
import { TokenDesk } from './proxied-keys.ts';
import { resetOfMessage } from './retry-after.ts';
import {
  failure,
  type ResultFacts,
  type RunnerContext,
  type RunnerResult,
  success,
} from './runner.ts';

/** Pi answers its first command after about 0.6 s; a stale lock file delays that by up to 30 s. */
const READY_MS = 40_000;
/** Between two starts while the lock of another Pi is held. */
const LOCKED_PAUSE_MS = 500;
/** Questions to an idle Pi are answered at once. */
const QUESTION_MS = 5_000;
const STDERR_TAIL_BYTES = 2 * 1024;

/** Tokens and cost of the session so far; it may have had earlier attempts. */
interface Spent {
  readonly usage: Usage;
  readonly costUsd: number;
  /** Prompts in the session. */
  readonly prompts: number;
}
const NOTHING_SPENT: Spent = { usage: usageOf({}), costUsd: 0, prompts: 0 };

const EXTENSION_NAME = `pi-extension${path.extname(fileURLToPath(import.meta.url))}`;
/** Read with all other code, at the start: a deploy may replace the file under us. */
const EXTENSION = readFileSync(new URL(EXTENSION_NAME, import.meta.url), 'utf8');

/**
 * Runs Pi as the launch file says. A Pi that was killed at its start (a power cut) leaves a lock
 * on its directory, which the next ones find held for about 10 s and end at once: they are
 * started again. Nothing has run then, so nothing can happen twice.
 */
export async function runPi(context: RunnerContext, spec: PiRunnerSpec): Promise<RunnerResult> {
  const { stop } = context;
  const patience = performance.now() + READY_MS;
  for (let tries = 1; ; tries += 1) {
    const run = new PiRun(context, spec);
    const result = await run.run().finally(() => run.dispose());
    if (!run.isLockedOut || performance.now() > patience) return result;
    if (tries === 1) {
      const message =
        'The directory of Pi is locked, by one that starts or was killed; trying again';
      context.emit('progress', { kind: 'retry', message });
    }
    await Promise.race([pause(LOCKED_PAUSE_MS), stop.turned]);
    if (stop.request !== null) return result;
  }
}

class PiRun {
  readonly #context: RunnerContext;
  readonly #spec: PiRunnerSpec;
  readonly #stdout: Capture;
  readonly #stderr: Capture;
  readonly #rpc: PiRpc;
  readonly #recorder: PiRecorder;
  readonly #grants: GrantBook;
  readonly #tokens: TokenDesk;
  /** Settles when no command of a grant runs any more. */
  #granted: Promise<readonly GrantResult[]> = Promise.resolve([]);
  #before = NOTHING_SPENT;
  #after: Spent | null = null;
  #stage: 'starting' | 'idle' | 'running' = 'starting';
  #violations = 0;
  #lockedOut = false;
  #broken: (what: string) => void = () => {};

  constructor(context: RunnerContext, spec: PiRunnerSpec) {
    this.#context = context;
    this.#spec = spec;
    const { attemptDirectory, launch, redact, warn } = context;
    const capture = (name: string, head: number): Capture => {
      const file = path.join(attemptDirectory, name);
      return new Capture({ file, limit: launch.captureBytes, head, redact, warn });
    };
    this.#stdout = capture(ATTEMPT_FILES.stdout, 0);
    this.#stderr = capture(ATTEMPT_FILES.stderr, Math.floor(launch.captureBytes / 2));
    this.#grants = new GrantBook(launch.approvals);
    this.#recorder = new PiRecorder(context, (record) => this.#rpc.send(record), this.#grants);
    this.#tokens = new TokenDesk(context.providers);
    const { fence } = this.#recorder;
    context.onLook(() => fence.look());
    this.#rpc = new PiRpc({
      argv: piArguments(spec, placeExtension(context, fence)),
      cwd: launch.cwd,
      umask: launch.umask,
      environment: context.environment,
      stdout: this.#stdout,
      stderr: this.#stderr,
      onEvent: (event) => this.#take(event),
      onViolation: (what, fatal) => this.#violation(what, fatal),
    });
  }

  /** Runs to the end, whoever brings it about. */
  async run(): Promise<RunnerResult> {
    const { stop } = this.#context;
    const broken = new Promise<RunnerResult>((resolve) => {
      this.#broken = (what) => resolve(failure('runner_protocol', what));
    });
    const first = await Promise.race([this.#work(), broken, stop.turned]);
    if ('by' in first) {
      const [end] = await Promise.all([this.#abort(first.graceMs), this.#granted]);
      return failure(first.code ?? 'aborted', first.message, this.#facts(end));
    }
    const end = await closePi(this.#rpc);
    return { ...first, ...this.#facts(end), text: first.text || this.#recorder.lastText };
  }

  /** True once Pi has ended at its start because somebody else holds a lock it needs. */
  get isLockedOut(): boolean {
    return this.#lockedOut;
  }

  dispose(): void {
    this.#recorder.finish();
    this.#stdout.finish();
    this.#stderr.finish();
    if (this.#violations > 0) {
      this.#context.warn(`Pi said ${this.#violations} lines that are not its protocol`);
    }
  }

  /** From readiness to the verdict; Pi is still up afterwards, unless it went by itself. */
  async #work(): Promise<RunnerResult> {
    const state = await this.#rpc.request('get_state', {}, READY_MS);
    if (state.kind !== 'ok') return this.#notReady(state);
    const unfenced = await this.#unfenced();
    this.#tokens.close();
    if (unfenced !== null) return failure('runner_error', unfenced);
    this.#before = (await this.#spent(QUESTION_MS)) ?? NOTHING_SPENT;
    this.#stage = 'idle';
    this.#started(objectOf(state.data));
    const prompt = { message: await this.#promptText() };
    if (this.#context.stop.request !== null) return this.#gone();
    this.#stage = 'running';
    // Unbounded: an extension may work on the prompt first. The hard deadline holds.
    const accepted = await this.#rpc.request('prompt', prompt, null);
    if (accepted.kind === 'refused') {
      return failure(classifyError(accepted.message), accepted.message);
    }
    if (accepted.kind !== 'ok') return this.#gone();
    if (objectOf(accepted.data)['disposition'] === 'handled' && !(await this.#isBusy())) {
      return success({ text: '' });
    }
    return this.#settle();
  }

  /** Why nothing may be prompted: what acts would not be seen. Null when the fence stands. */
  async #unfenced(): Promise<string | null> {
    const tools = await within(this.#recorder.fence.ready, QUESTION_MS);
    if (tools === 'late') return "Pi runs without outlive's extension, so what it does is not seen";
    const missing = this.#recorder.fence.fenced.filter((tool) => !tools.includes(tool));
    if (missing.length === 0) return null;
    return `Another extension has replaced ${missing.join(', ')} of Pi, so what it does is not seen`;
  }

  /** Runs what was approved meanwhile; the text tells of it. */
  async #promptText(): Promise<string> {
    const { prompt, continuation } = this.#spec;
    const isBegun = continuation !== null && this.#before.prompts > 0;
    const { fence } = this.#recorder;
    this.#granted = runGrants(this.#context, fence, this.#grants.toRun, (grant, text) =>
      this.#recorder.printed(grant.toolCallId, grant.tool, text),
    );
    const told = this.#grants.paragraph(await this.#granted);
    return [isBegun ? continuation : prompt, told].filter((part) => part !== '').join('\n\n');
  }

  async #settle(): Promise<RunnerResult> {
    const settled = await Promise.race([this.#recorder.settled, this.#rpc.ended]);
    if (typeof settled !== 'boolean') return this.#gone();
    this.#stage = 'idle';
    const { code, message } = verdictOf(this.#recorder.last, settled);
    this.#after = await this.#spent(QUESTION_MS);
    if (code !== null) {
      const now = Date.now();
      const resetAt = this.#recorder.resetAt ?? resetOfMessage(message ?? '', now);
      const retryAt = resetAt === null ? null : new Date(Math.max(now, resetAt)).toISOString();
      return failure(code, message ?? '', { retryAt });
    }
    const text = await this.#rpc.request('get_last_assistant_text', {}, QUESTION_MS);
    const said = text.kind === 'ok' ? stringOf(objectOf(text.data)['text']) : null;
    return success({ text: said ?? this.#recorder.lastText });
  }

  #take(event: JsonObject): void {
    const answer = this.#tokens.answerTo(event);
    if (answer === null) this.#recorder.take(event);
    else this.#rpc.send(answer);
  }

  #started(state: JsonObject): void {
    const model = objectOf(state['model']);
    const [provider, id] = [stringOf(model['provider']), stringOf(model['id'])];
    this.#context.emit('started', {
      runner: 'pi',
      pid: this.#rpc.pid,
      sessionId: stringOf(state['sessionId']),
      model: provider === null || id === null ? null : `${provider}/${id}`,
      piVersion: piVersion(this.#spec.command),
    });
  }

  async #notReady(answer: Exclude<Answer, { kind: 'ok' }>): Promise<RunnerResult> {
    if (answer.kind === 'refused') return failure(classifyError(answer.message), answer.message);
    if (answer.kind === 'late') {
      return failure('runner_error', `Pi did not answer within ${READY_MS / 1000} s of its start`);
    }
    const end = await this.#rpc.ended;
    if (end.error !== null) {
      const program = this.#spec.command[0] ?? '';
      const message = `${program} could not be started: ${end.error}`;
      return failure('spawn_error', message, { exitCode: spawnExitCode(end.error) });
    }
    const said = this.#stderr.tailText(STDERR_TAIL_BYTES).trim();
    this.#lockedOut = isLockHeld(said);
    return failure(classifyStartFailure(said), said || `Pi ended at its start, ${describe(end)}`);
  }

  /** Pi ended by itself in the middle of the work. */
  async #gone(): Promise<RunnerResult> {
    const end = await this.#rpc.ended;
    const said = this.#stderr.tailText(STDERR_TAIL_BYTES).trim();
    const message = `Pi ended before its run did, ${describe(end)}`;
    return failure('runner_error', said === '' ? message : `${message}: ${said}`);
  }

  #abort(graceMs: number): Promise<ProgramEnd> {
    const running = this.#stage === 'running';
    return abortPi(this.#rpc, running, graceMs, async (ms) => {
      this.#after = await this.#spent(ms);
    });
  }

  async #isBusy(): Promise<boolean> {
    const state = await this.#rpc.request('get_state', {}, QUESTION_MS);
    return state.kind === 'ok' && objectOf(state.data)['isStreaming'] === true;
  }

  async #spent(ms: number): Promise<Spent | null> {
    const answer = await this.#rpc.request('get_session_stats', {}, ms);
    if (answer.kind !== 'ok') return null;
    const stats = objectOf(answer.data);
    return {
      usage: usageOf(objectOf(stats['tokens'])),
      costUsd: numberOf(stats['cost']) ?? 0,
      prompts: numberOf(stats['userMessages']) ?? 0,
    };
  }

  /** What this attempt spent: the session's figures less those of before, else what its messages add up to. */
  #facts(end: ProgramEnd): ResultFacts {
    const { usage, costUsd, lastText } = this.#recorder;
    const spent = this.#after === null ? { usage, costUsd } : difference(this.#after, this.#before);
    const exitCode = end.error === null ? end.exitCode : spawnExitCode(end.error);
    return { text: lastText, exitCode, signal: end.signal, ...spent };
  }

  #violation(what: string, fatal: boolean): void {
    if (this.#violations === 0)
      this.#context.warn(`Pi said something that is not its protocol: ${what}`);
    this.#violations += 1;
    if (fatal) this.#broken(what);
  }
}

/**
 * Gives Pi a copy of its own, swept with the runtime files: Pi reads it after a deploy may
 * have taken ours away. Throws where it cannot be written: nothing may run without the fence.
 */
function placeExtension(context: RunnerContext, { fenced, plain }: Fence): string {
  const { launch, nest } = context;
  const providers = context.providers.map(({ name, baseUrl }) => ({ name, baseUrl }));
  const directory = path.dirname(launch.controlSocket);
  const file = path.join(directory, EXTENSION_NAME);
  const settings = JSON.stringify({ file, fenced, plain, enter: nest?.enter ?? null, providers });
  const text = EXTENSION.replace(/(['"])__OUTLIVE_SETTINGS__\1/, () => JSON.stringify(settings));
  makeDirectory(directory);
  writeFileSync(file, text, { mode: 0o600 });
  return file;
}

/** Pi's command line. The prompt is never in it, nor is anything secret. */
export function piArguments(spec: PiRunnerSpec, extension: string | null = null): string[] {
  const model = spec.model === null ? [] : ['--model', spec.model];
  const extensions = extension === null ? [] : ['-e', extension];
  return [...spec.command, '--mode', 'rpc', '--session', spec.sessionFile, ...model, ...extensions];
}

function difference(after: Spent, before: Spent): Pick<Spent, 'usage' | 'costUsd'> {
  const less = (name: keyof Usage): number => after.usage[name] - before.usage[name];
  return {
    usage: {
      inputTokens: less('inputTokens'),
      outputTokens: less('outputTokens'),
      cacheReadTokens: less('cacheReadTokens'),
      cacheWriteTokens: less('cacheWriteTokens'),
      totalTokens: less('totalTokens'),
    },
    costUsd: after.costUsd - before.costUsd,
  };
}

function describe(end: ProgramEnd): string {
  return end.signal === null ? `exit status ${end.exitCode}` : `killed by ${end.signal}`;
}
