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
import { runCommand } from './command-runner.ts';
import { ControlServer } from './control-server.ts';
import { armDeadline, planDeadline } from './deadline.ts';
import { type Credentials, readCredentials, type WrapperEnvironment } from './env.ts';
import type { AbortReason, EventData } from './event-data.ts';
import { errorCode, isDiskFull } from './files.ts';
import { type KeyProxy, openKeyProxy } from './key-proxy.ts';
import { lastWord } from './last-word.ts';
import { readLeftovers, readMarked } from './leftovers.ts';
import { runPi } from './pi-runner.ts';
import { type ProxiedKey, readProxiedKeys, secretsOf } from './proxied-keys.ts';
import { type Redact, redactor } from './redact.ts';
import { failure, type ProxiedProvider, type RunnerContext, type RunnerResult } from './runner.ts';
import { knownSecrets } from './secrets.ts';
import { SpoolWriter } from './spool-writer.ts';
import { StopSwitch } from './stop.ts';

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

export class Attempt {
  readonly #setting: AttemptSetting;
  readonly #credentials: Credentials;
  readonly #proxied: readonly ProxiedKey[];
  readonly #redact: Redact;
  readonly #spool: SpoolWriter;
  readonly #stop = new StopSwitch();
  #look: () => void = () => {};
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
    const { request } = this.#stop;
    if (request === null) return;
    const code = request.code === 'disk_full' ? 'ENOSPC' : undefined;
    throw Object.assign(new Error(request.message), { code });
  }

  /** Runs the runner to its end and writes the last word. */
  async run(): Promise<Ending> {
    const { launch, environment, ageMs } = this.#setting;
    const control = this.#openControl();
    const deadline = planDeadline(launch.timeouts.hardTimeoutMs);
    const disarm = armDeadline(deadline.afterMs, ageMs, () => this.#deadline(deadline.graceMs));
    const result = await this.#runRunner();
    disarm();
    const { invocationId, mark, nonce } = environment;
    const leftovers = mark ? readMarked(mark, nonce) : readLeftovers(invocationId);
    const word = lastWord(result, this.#stop.request, leftovers, this.#redact);
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
      this.#spool.append('attempt.told_to_stop', data),
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
      this.#spool.append('attempt.deadline', { hardTimeoutMs, elapsedMs: Math.round(ageMs()) }),
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
    this.#spool.append('progress', { kind: 'control_unavailable', message });
  }

  async #runRunner(): Promise<RunnerResult> {
    const { launch } = this.#setting;
    if ('missing' in this.#credentials) {
      return failure('provider_auth', `A credential cannot be read: ${this.#credentials.missing}`);
    }
    if (!isDirectory(launch.cwd)) {
      return failure('cwd_missing', `The working directory ${launch.cwd} does not exist`);
    }
    let proxy: KeyProxy | null = null;
    try {
      proxy = await this.#openKeyProxy();
    } catch (error) {
      return failure('runner_error', `The key proxy cannot be opened: ${errorCode(error)}`);
    }
    const context = this.#context(this.#credentials.values, proxy?.providers ?? []);
    try {
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

  async #openKeyProxy(): Promise<KeyProxy | null> {
    if (this.#proxied.length === 0) return null;
    const { launch, warn } = this.#setting;
    return openKeyProxy(this.#proxied, { environment: launch.environment, warn });
  }

  #context(
    credentials: Readonly<Record<string, string>>,
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
        ...(mark ? { OUTLIVE_MARK: mark } : {}),
        ...(providers.length > 0 ? pastOtherProxies(launch.environment) : {}),
      },
      providers,
      emit: this.#spool.append,
      live: (change) => {
        this.#live = { ...this.#live, ...change };
      },
      stop: this.#stop,
      redact: this.#redact,
      onLook: (look) => {
        this.#look = look;
      },
      nest: null,
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
