/**
 * One attempt, once it is claimed and its spool is open: everything that can end
 * the runner, the runner itself, the last word.
 */
import { statSync } from 'node:fs';
import path from 'node:path';
import {
  ATTEMPT_FILES,
  CONTROL_VERSION,
  type LaunchFile,
  type LiveState,
} from '../domain/attempt-files.ts';
import type { SandboxMode } from '../domain/sandbox.ts';
import { Capture } from './capture.ts';
import { CHANGES_MS, Changes } from './changes.ts';
import { runCommand } from './command-runner.ts';
import { ControlServer } from './control-server.ts';
import { armDeadline, planDeadline } from './deadline.ts';
import { type Credentials, readCredentials, type WrapperEnvironment } from './env.ts';
import type { AbortReason, Emit, EventData } from './event-data.ts';
import { errorCode, isDiskFull } from './files.ts';
import { type KeyProxy, openKeyProxy } from './key-proxy.ts';
import { lastWord } from './last-word.ts';
import { type Leftover, readLeftovers, readMarked } from './leftovers.ts';
import { type Nest, NestError, openNest } from './nest.ts';
import { runPi } from './pi-runner.ts';
import { type ProxiedKey, readProxiedKeys, secretsOf } from './proxied-keys.ts';
import { type Redact, redactor } from './redact.ts';
import { failure, type ProxiedProvider, type RunnerContext, type RunnerResult } from './runner.ts';
import { knownSecrets } from './secrets.ts';
import { SpoolWriter } from './spool-writer.ts';
import { type StopRequest, StopSwitch } from './stop.ts';
import { makeTemporary, TemporaryWatch } from './temporary.ts';
import { Transcript } from './transcript.ts';

/** How the wrapper's process ends. */
export type Ending = 'ok' | 'error' | 'stopped' | 'spool_lost';

/** What the attempt runs with. */
export interface AttemptSetting {
  readonly directory: string;
  readonly launch: LaunchFile;
  readonly environment: WrapperEnvironment;
  /** Milliseconds since systemd's clock for this unit began. */
  readonly ageMs: () => number;
  readonly warn: (sentence: string) => void;
}

// A broken wrapper or a full disk is no moment to wait long.
const EMERGENCY_GRACE_MS = 5_000;
/** From the last word to the end of the process. */
const LAST_WORD_MS = 500;

export class Attempt {
  readonly #setting: AttemptSetting;
  readonly #credentials: Credentials;
  readonly #proxied: readonly ProxiedKey[];
  readonly #redact: Redact;
  readonly #spool: SpoolWriter;
  readonly #stop = new StopSwitch();
  #look: () => void = () => {};
  #transcript: Transcript | null = null;
  #temporary: TemporaryWatch | null = null;
  #changes: Changes | null = null;
  /** When a stop's grace is over, monotonic. */
  #graceEnds = Number.POSITIVE_INFINITY;
  #nest: Nest | null = null;
  #live: LiveState = { currentTool: null, costUsd: null, totalTokens: null };

  /** Opens the spool, durably. Throws when that fails: then nothing may run. */
  constructor(setting: AttemptSetting, opened: EventData['attempt.opened']) {
    const { launch, environment, directory } = setting;
    this.#credentials = readCredentials(launch, environment.credentialsDirectory);
    this.#proxied = readProxiedKeys(launch, environment.credentialsDirectory);
    const values = 'values' in this.#credentials ? this.#credentials.values : {};
    const redact = redactor(knownSecrets(launch, { ...values, ...secretsOf(this.#proxied) }));
    this.#redact = redact;
    this.#setting = { ...setting, warn: (sentence) => setting.warn(redact(sentence)) };
    this.#spool = new SpoolWriter(path.join(directory, ATTEMPT_FILES.spool), {
      redact,
      onBroken: (error) => this.#spoolBroken(error),
    });
    this.#spool.append('attempt.opened', opened);
    void this.#stop.turned.then(({ graceMs }) => {
      this.#graceEnds = performance.now() + graceMs;
    });
    const { request } = this.#stop;
    if (request === null) return;
    const code = request.code === 'disk_full' ? 'ENOSPC' : undefined;
    throw Object.assign(new Error(request.message), { code });
  }

  /** Runs the runner to its end and writes the last word. */
  async run(): Promise<Ending> {
    const { launch, ageMs } = this.#setting;
    const control = this.#openControl();
    const deadline = planDeadline(launch.timeouts.hardTimeoutMs);
    const disarm = armDeadline(deadline.afterMs, ageMs, () => this.#deadline(deadline.graceMs));
    const result = await this.#runRunner();
    disarm();
    // The runner's end stands: what stops us from here on has not stopped it.
    const stop = this.#stop.request;
    const forChanges = this.#timeForChanges(stop);
    if (forChanges > 0) await this.#changes?.end(forChanges);
    const leftovers = this.#leftovers();
    await this.#nest?.close();
    const word = lastWord(result, stop, leftovers, this.#redact);
    this.#transcript?.finish(word);
    const said = this.#spool.finish(word);
    control.close();
    if (word.verdict === 'stopped') return 'stopped';
    return said ? word.verdict : 'spool_lost';
  }

  /** systemd, or somebody with kill(1), wants the end. A second time changes nothing. */
  terminate(): void {
    const graceMs = this.#setting.launch.timeouts.cancelGraceMs;
    this.#toldToStop({ by: 'SIGTERM', reason: null, graceMs }, 'Told to stop by SIGTERM');
  }

  /** Something in the wrapper itself broke: say so, and end the runner. */
  crash(error: unknown): void {
    const message = `The wrapper broke: ${error instanceof Error ? error.stack : String(error)}`;
    this.#setting.warn(message);
    this.#stop.turn({ by: 'crash', graceMs: EMERGENCY_GRACE_MS, code: 'runner_error', message });
  }

  #toldToStop(data: EventData['attempt.told_to_stop'], message: string): void {
    this.#stop.turn({ by: data.by, graceMs: data.graceMs, code: null, message }, () =>
      this.#emit('attempt.told_to_stop', data),
    );
  }

  #abort(reason: AbortReason, graceMs: number): void {
    this.#toldToStop({ by: 'control', reason, graceMs }, `Told to stop by the daemon: ${reason}`);
  }

  #deadline(graceMs: number): void {
    const { launch, ageMs } = this.#setting;
    const { hardTimeoutMs } = launch.timeouts;
    const message = `It reached its hard timeout of ${hardTimeoutMs / 1000} s`;
    this.#stop.turn({ by: 'deadline', graceMs, code: 'hard_timeout', message }, () =>
      this.#emit('attempt.deadline', { hardTimeoutMs, elapsedMs: Math.round(ageMs()) }),
    );
  }

  #spoolBroken(error: unknown): void {
    const code = errorCode(error);
    const message = `The spool could not be written: ${code}`;
    this.#setting.warn(message);
    this.#stop.turn({
      by: 'spool',
      graceMs: Math.min(EMERGENCY_GRACE_MS, this.#setting.launch.timeouts.cancelGraceMs),
      code: isDiskFull(code) ? 'disk_full' : 'runner_error',
      message,
    });
  }

  #openControl(): ControlServer {
    const { launch, environment } = this.#setting;
    const { attemptId, nonce } = launch;
    const invocationId = environment.invocationId ?? null;
    const v = CONTROL_VERSION;
    const spoolBytes = (): number => this.#spool.bytes;
    return new ControlServer({
      socket: launch.controlSocket,
      heartbeatIntervalMs: launch.timeouts.heartbeatIntervalMs,
      hello: () => {
        const pid = process.pid;
        return { v, type: 'hello', attemptId, nonce, invocationId, pid, spoolBytes: spoolBytes() };
      },
      heartbeat: () => {
        const ts = new Date().toISOString();
        return { v, type: 'heartbeat', ts, spoolBytes: spoolBytes(), live: this.#live };
      },
      onAbort: (reason, graceMs) => this.#abort(reason, graceMs),
      onLook: () => this.#look(),
      onUnavailable: (why) => this.#withoutControl(why),
    });
  }

  #withoutControl(why: string): void {
    const message = `No control socket, the run goes on without: ${why}`;
    this.#setting.warn(message);
    this.#emit('progress', { kind: 'control_unavailable', message });
  }

  async #runRunner(): Promise<RunnerResult> {
    const { launch } = this.#setting;
    if ('missing' in this.#credentials) {
      return failure('provider_auth', `A credential cannot be read: ${this.#credentials.missing}`);
    }
    if (!isDirectory(launch.cwd)) {
      return failure('cwd_missing', `The working directory ${launch.cwd} does not exist`);
    }
    const { values } = this.#credentials;
    let proxy: KeyProxy | null = null;
    try {
      proxy = await this.#openKeyProxy();
    } catch (error) {
      return failure('runner_error', `The key proxy cannot be opened: ${errorCode(error)}`);
    }
    try {
      // Made before the nest, which shows it to the commands in it.
      const temporary = this.#makeTemporary();
      const refused = await this.#openSandbox(temporary);
      if (refused !== null) return refused;
      const context = this.#context(values, temporary, proxy?.providers ?? []);
      await this.#openArtifacts(context);
      const { request } = this.#stop;
      if (request !== null) return failure(request.code ?? 'aborted', request.message);
      const { runner } = launch;
      return await (runner.kind === 'pi'
        ? runPi(context, runner)
        : runCommand(context, runner.argv));
    } catch (error) {
      this.crash(error);
      return failure('runner_error', String(error));
    } finally {
      proxy?.close();
    }
  }

  /** Transcript and diff begin before the runner does. */
  async #openArtifacts({ launch, attemptDirectory, environment }: RunnerContext): Promise<void> {
    const { warn } = this.#setting;
    const limit = launch.captureBytes;
    const common = { limit, redact: this.#redact, warn };
    if (launch.runner.kind === 'pi') {
      const file = path.join(attemptDirectory, ATTEMPT_FILES.transcript);
      this.#transcript = new Transcript(
        new Capture({ ...common, file, head: Math.floor(limit / 2) }),
      );
    }
    const { cwd } = launch;
    const stop = this.#stop;
    this.#changes = await Changes.begin({ ...common, cwd, attemptDirectory, environment, stop });
  }

  /** Milliseconds: the last word must be written before systemd's deadline, or a stop's grace, is over. */
  #timeForChanges(stop: StopRequest | null): number {
    const { launch, ageMs } = this.#setting;
    // A full disk or a broken wrapper is no moment to look around.
    if (stop?.by === 'spool' || stop?.by === 'crash') return 0;
    const untilDeadline = launch.timeouts.hardTimeoutMs - ageMs() - LAST_WORD_MS;
    return Math.min(CHANGES_MS, untilDeadline, this.#graceEnds - performance.now());
  }

  readonly #emit: Emit = (type, data) => {
    const written = this.#spool.append(type, data);
    this.#transcript?.push(type, data);
    if (type.startsWith('tool.')) this.#temporary?.look();
    return written;
  };

  /** Pi's own directory for temporary files; null where there is none. */
  #makeTemporary(): string | null {
    const { launch, warn } = this.#setting;
    if (launch.runner.kind !== 'pi') return null;
    const directory = makeTemporary(launch.temporaryDirectory, warn);
    if (directory !== null) this.#temporary = new TemporaryWatch(directory, this.#emit);
    return directory;
  }

  /** Null when the runner may run, in what there is; else why it may not. */
  async #openSandbox(shown: string | null): Promise<RunnerResult | null> {
    const { launch, environment } = this.#setting;
    const { sandbox } = launch;
    if (sandbox === null) return null;
    if (sandbox.weaker !== null) this.#sandboxWeaker(sandbox.mode, sandbox.weaker);
    if (sandbox.mode !== 'nest') return null;
    try {
      this.#nest = await openNest(
        { ...sandbox, shown },
        {
          cwd: launch.cwd,
          without: launch.credentialVariables,
          mark: environment.mark,
          signal: this.#stop.signal,
        },
      );
      return null;
    } catch (error) {
      if (!(error instanceof NestError)) throw error;
      const { request } = this.#stop;
      if (request !== null) return failure(request.code ?? 'aborted', request.message);
      if (sandbox.demanded) {
        return failure('sandbox_unavailable', `The nest cannot be opened: ${error.message}`);
      }
      this.#sandboxWeaker(environment.mark ? 'off' : 'unit', error.message);
      return null;
    }
  }

  #sandboxWeaker(mode: SandboxMode, why: string): void {
    const what = mode === 'unit' ? 'in the sandbox of its unit only' : 'in no sandbox';
    this.#emit('progress', {
      kind: 'sandbox_weaker',
      message: `Commands run ${what}: ${why}`,
      mode,
    });
  }

  #leftovers(): Leftover[] {
    const { invocationId, mark, nonce } = this.#setting.environment;
    const all = mark ? readMarked(mark, nonce) : readLeftovers(invocationId);
    const own = this.#nest?.pids;
    return own === undefined ? all : all.filter(({ pid }) => !own.has(pid));
  }

  async #openKeyProxy(): Promise<KeyProxy | null> {
    if (this.#proxied.length === 0) return null;
    const { launch, warn } = this.#setting;
    return openKeyProxy(this.#proxied, { environment: launch.environment, warn });
  }

  #context(
    credentials: Readonly<Record<string, string>>,
    temporary: string | null,
    providers: readonly ProxiedProvider[],
  ): RunnerContext {
    const { launch, directory, environment, warn } = this.#setting;
    const { mark } = environment;
    return {
      launch,
      attemptDirectory: directory,
      environment: {
        ...launch.environment,
        ...credentials,
        ...(temporary === null ? {} : { TMPDIR: temporary }),
        ...(mark ? { OUTLIVE_MARK: mark } : {}),
        ...(providers.length > 0 ? pastOtherProxies(launch.environment) : {}),
      },
      emit: this.#emit,
      providers,
      live: (change) => {
        this.#live = { ...this.#live, ...change };
      },
      stop: this.#stop,
      redact: this.#redact,
      onLook: (look) => {
        this.#look = look;
      },
      nest: this.#nest,
      warn,
    };
  }
}

/** Pi reaches us directly, whatever its environment or its own settings say of other proxies. */
function pastOtherProxies(environment: Readonly<Record<string, string>>): Record<string, string> {
  const told = environment['no_proxy'] ?? environment['NO_PROXY'] ?? '';
  if (told === '*') return {};
  const hosts = told === '' ? '127.0.0.1' : `${told},127.0.0.1`;
  return { NO_PROXY: hosts, no_proxy: hosts };
}

function isDirectory(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
