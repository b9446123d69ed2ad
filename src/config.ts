/**
 * Configuration: the one reader of process.env and of config.json.
 *
 * What systemd hands in (STATE_DIRECTORY, RUNTIME_DIRECTORY, CONFIGURATION_DIRECTORY)
 * wins over the XDG base directories; both are documented in docs/operations.md.
 */
import { existsSync, readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { driverNameSchema, driverSpecSchema } from './domain/driver.ts';
import { OutliveError } from './domain/errors.ts';
import { type LinearConfig, linearConfig, linearFileSchema } from './domain/linear-config.ts';
import { workspaceSchema } from './domain/names.ts';
import { breakerPolicySchema } from './domain/provider-health.ts';
import { DEFAULT_PROVIDER_RETRY, providerRetrySchema } from './domain/provider-retry.ts';
import { SANDBOX_SETTINGS, type SandboxSetting } from './domain/sandbox.ts';
import { spendCeilingSchema } from './domain/spend.ts';
import { toolPolicySchema } from './domain/tool-policy-schema.ts';
import { WORK_UNIT_KINDS } from './domain/work-unit.ts';

const variableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'not a variable name');

function isTimeZone(name: string): boolean {
  try {
    return Intl.DateTimeFormat('en-US', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}

const absolutePath = z.string().startsWith('/', 'must be an absolute path').max(4096);
/** A URL that paths can be put behind. */
function isBaseUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return false;
  return url.username + url.password + url.search + url.hash === '';
}

/** Headers that say what a request is, not whose. */
const NO_KEY_HEADER = /^(?:host|connection|content-length|transfer-encoding|te|trailer|upgrade)$/i;

const keyProxySchema = z.strictObject({
  keyVariable: variableName,
  baseUrl: z.string().refine(isBaseUrl, 'is not an http or https URL without query and user'),
  header: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,64}$/, 'is not the name of a header')
    .refine((name) => !NO_KEY_HEADER.test(name), 'cannot carry a key')
    .default('authorization'),
  /** The word before the key; none when empty. */
  scheme: z
    .string()
    .regex(/^[A-Za-z0-9-]{0,32}$/, 'is not a word')
    .optional(),
});

const slots = z.int().min(1).max(10_000);

/** config.json. Every key is optional; an unknown key is an error that names it. */
export const configFileSchema = z
  .strictObject({
    api: z
      .strictObject({
        /** TCP port on 127.0.0.1; 0 takes any free one, null opens none. */
        port: z.int().min(0).max(65535).nullable().default(5187),
        /** A reader of a stream that takes nothing for this long is dismissed, milliseconds; it can resume. */
        streamStallMs: z.int().min(1_000).max(3_600_000).default(60_000),
      })
      .prefault({}),
    pi: z
      .strictObject({
        /** A person's own Pi, program and leading arguments; outlive's dependency when absent. */
        command: z.array(z.string().min(1)).min(1).optional(),
        /** An isolated agent directory; the person's own (~/.pi/agent) when absent. */
        agentDir: z.string().startsWith('/', 'must be an absolute path').optional(),
      })
      .prefault({}),
    /** Names of variables that hold keys. Their values go to Pi only, as credentials. */
    keyVariables: z.array(variableName).max(64).default([]),
    /** Providers of Pi's whose keys stay with the wrapper, each by Pi's name of it. */
    keyProxy: z.record(z.string().min(1).max(256), keyProxySchema).default({}),
    /** Names of further variables that runners may see. */
    passEnvironment: z.array(variableName).max(256).default([]),
    /** Further variables for runners, by value. No place for secrets. */
    environment: z.record(variableName, z.string()).default({}),
    /** How many may run at once. A key that is not named has no limit. */
    limits: z
      .strictObject({
        runner: z.record(z.string(), slots).default({ pi: 8, command: 32 }),
        provider: z.record(z.string(), slots).default({}),
        media_provider: z.record(z.string(), slots).default({}),
      })
      .prefault({}),
    /** What is kept of ended work, and how often that is looked at. */
    retention: z
      .strictObject({
        /** Days after its end; null keeps it for ever. */
        days: z.number().min(0.01).max(36_500).nullable().default(30),
        /** For store, spools, sessions and exit records together; null for any number. */
        diskBudgetBytes: z.int().min(1_048_576).nullable().default(5_368_709_120),
        intervalMinutes: z.int().min(1).max(10_080).default(60),
      })
      .prefault({}),
    /** Providers with a model, each under a name of its own. */
    presets: z
      .record(
        z.string().min(1).max(256),
        z.strictObject({
          provider: z.string().min(1).max(256),
          model: z.string().min(1).max(256),
          maxParallel: slots.optional(),
        }),
      )
      .default({}),
    providerRetry: z
      .strictObject({
        maxAttempts: providerRetrySchema.shape.maxAttempts.default(
          DEFAULT_PROVIDER_RETRY.maxAttempts,
        ),
        maxDelayMs: providerRetrySchema.shape.maxDelayMs.default(DEFAULT_PROVIDER_RETRY.maxDelayMs),
      })
      .prefault({}),
    breaker: breakerPolicySchema.prefault({}),
    spend: z
      .strictObject({
        /** Whose midnight ends a day; the daemon's own when absent. */
        timeZone: z
          .string()
          .refine(isTimeZone, 'is not a time zone such as "Europe/Berlin"')
          .optional(),
        day: spendCeilingSchema.prefault({}),
        kinds: z.partialRecord(z.enum(WORK_UNIT_KINDS), spendCeilingSchema).default({}),
      })
      .prefault({}),
    /** What a person is asked before a tool of an agent acts. */
    approvals: z
      .strictObject({
        policy: toolPolicySchema.prefault({}),
        /** In place of it, for work of this kind or of this channel. */
        kinds: z.partialRecord(z.enum(WORK_UNIT_KINDS), toolPolicySchema).default({}),
        channels: z.record(z.string().min(1).max(256), toolPolicySchema).default({}),
        /** How long a question stays open, milliseconds. */
        expireAfterMs: z.int().min(1_000).max(31_536_000_000).default(86_400_000),
        /** An attempt that waits for longer gives its process, leases and slots back, milliseconds. */
        suspendAfterMs: z.int().min(1_000).max(31_536_000_000).default(1_800_000),
      })
      .prefault({}),
    admission: z
      .strictObject({
        /** Bytes; nothing is started while less is free. */
        minFreeMemory: z.int().min(1).nullable().default(null),
      })
      .prefault({}),
    /** Drivers, each under its name; taken over at a start of the daemon. */
    drivers: z.record(driverNameSchema, driverSpecSchema).default({}),
    /** The Linear agent; without it there is none. */
    linear: linearFileSchema.optional(),
    sandbox: z
      .strictObject({
        /** How far what runs is kept from everything else; auto is as much as can be had for Pi. */
        mode: z.enum(SANDBOX_SETTINGS).default('auto'),
        /** Further directories that commands in a nest shall not see. */
        hide: z.array(absolutePath).max(64).default([]),
        /** Of what is hidden by itself, what shall be seen all the same: the socket of Docker, say. */
        show: z.array(absolutePath).max(64).default([]),
      })
      .prefault({}),
    /** Bytes kept of a runner's stdout and stderr, half head and half tail. */
    captureBytes: z.int().min(4096).max(1_073_741_824).default(1_048_576),
    /** File mode mask of runners, octal; the daemon's own when absent. */
    umask: z
      .string()
      .regex(/^0?[0-7]{3}$/, 'must be an octal mask such as "022"')
      .optional(),
  })
  .check(({ value, issues }) => {
    for (const name of value.keyVariables) {
      if (!Object.hasOwn(value.environment, name)) continue;
      const path = ['environment', name];
      const message = 'is also in keyVariables; the value of a key belongs in no file of ours';
      issues.push({ code: 'custom', input: null, path, message });
    }
    for (const [provider, { keyVariable }] of Object.entries(value.keyProxy)) {
      if (value.keyVariables.includes(keyVariable)) continue;
      const path = ['keyProxy', provider, 'keyVariable'];
      const message = `${keyVariable} is not in keyVariables`;
      issues.push({ code: 'custom', input: null, path, message });
    }
  });
export type ConfigFile = z.output<typeof configFileSchema>;

/** Where everything lies. All paths absolute. */
export interface Directories {
  readonly configFile: string;
  readonly state: string;
  readonly store: string;
  readonly attempts: string;
  readonly sessions: string;
  readonly exits: string;
  readonly temporary: string;
  readonly decisions: string;
  readonly token: string;
  /** Entries and scripts of the direct executor. */
  readonly direct: string;
  /** `$XDG_RUNTIME_DIR`: the user manager's own, or what stands for it where there is none. */
  readonly userRuntime: string;
  readonly runtime: string;
  readonly apiSocket: string;
  readonly cache: string;
}

export interface Config {
  readonly workspace: string;
  readonly directories: Directories;
  readonly file: ConfigFile;
  /** OUTLIVE_EXECUTOR: where new attempts start; auto is systemd where it can be reached. */
  readonly executor: 'auto' | 'systemd' | 'direct';
  /** OUTLIVE_SANDBOX, else sandbox.mode of config.json. */
  readonly sandbox: SandboxSetting;
  readonly busAddress: string;
  /** NOTIFY_SOCKET when a service manager waits for READY=1. */
  readonly notifySocket: string | null;
  /** WATCHDOG_USEC in milliseconds, when the service manager waits for a sign of life from us. */
  readonly watchdogMs: number | null;
  /** The environment runners may be given, already filtered by name. */
  readonly runnerEnvironment: Readonly<Record<string, string>>;
  /** Values of the variables named by keyVariables that are set. Never logged, never stored. */
  readonly keys: Readonly<Record<string, string>>;
  readonly umask: number;
  readonly home: string;
  readonly user: string;
  readonly logLevel: string;
  /** TCP port of the API, null for none: OUTLIVE_PORT, else api.port of config.json. */
  readonly port: number | null;
  /** Null where config.json has no section for it. */
  readonly linear: LinearConfig | null;
  /** OUTLIVE_SHUTDOWN and SHUTDOWN_GRACE_MS: what an orderly end of the daemon does to attempts. */
  readonly shutdown: { readonly mode: 'detach' | 'suspend'; readonly graceMs: number };
  /** OUTLIVE_FAULT: the fault point at which a test wants the daemon dead, `name` or `name:count`. */
  readonly fault: string | null;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** Variables every runner gets when they are set; anything else must be named in config.json. */
const RUNNER_VARIABLES = [
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'PATH',
  'LANG',
  'LC_ALL',
  'LC_CTYPE',
  'TZ',
  'TERM',
  'XDG_CONFIG_HOME',
  'XDG_CACHE_HOME',
  'XDG_DATA_HOME',
  'XDG_STATE_HOME',
  'PI_CODING_AGENT_DIR',
  'PI_OFFLINE',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
  'SSL_CERT_FILE',
  'NODE_EXTRA_CA_CERTS',
];

const set = (value: string | undefined): string | undefined => (value === '' ? undefined : value);

function parseWorkspace(name: string): string {
  const parsed = workspaceSchema.safeParse(name);
  if (parsed.success) return parsed.data;
  throw new OutliveError(
    'usage',
    `"${name}" is not a workspace name: ${parsed.error.issues[0]?.message}.`,
  );
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

function parseLogLevel(text: string): string {
  if (LOG_LEVELS.includes(text)) return text;
  throw new OutliveError(
    'usage',
    `OUTLIVE_LOG_LEVEL is "${text}"; use one of ${LOG_LEVELS.join(', ')}.`,
  );
}

const SHUTDOWN_GRACE_MS = 60_000;
/** A day: longer is a mistake, and no service manager waits for it. */
const SHUTDOWN_GRACE_MAX_MS = 86_400_000;

/** The grace is read literally: milliseconds, whole, and nothing else. */
function parseShutdown(env: Environment): Config['shutdown'] {
  const mode = set(env['OUTLIVE_SHUTDOWN']) ?? 'detach';
  if (mode !== 'detach' && mode !== 'suspend') {
    throw new OutliveError(
      'usage',
      `OUTLIVE_SHUTDOWN is "${mode}"; use detach (attempts run on) or suspend.`,
    );
  }
  const grace = set(env['SHUTDOWN_GRACE_MS']) ?? String(SHUTDOWN_GRACE_MS);
  if (!/^\d{1,8}$/.test(grace) || Number(grace) > SHUTDOWN_GRACE_MAX_MS) {
    throw new OutliveError(
      'usage',
      `SHUTDOWN_GRACE_MS is "${grace}"; use milliseconds, as 60000, at most ${SHUTDOWN_GRACE_MAX_MS}. 0 suspends at once.`,
    );
  }
  return { mode, graceMs: Number(grace) };
}

function parsePort(text: string | undefined, fromFile: number | null): number | null {
  if (text === undefined) return fromFile;
  if (text === 'none') return null;
  if (/^\d{1,5}$/.test(text) && Number(text) <= 65535) return Number(text);
  throw new OutliveError(
    'usage',
    `OUTLIVE_PORT is "${text}"; use a port, 0 for any free one, or "none".`,
  );
}

function parseExecutor(text: string): Config['executor'] {
  if (text === 'auto' || text === 'systemd' || text === 'direct') return text;
  throw new OutliveError('usage', `OUTLIVE_EXECUTOR is "${text}"; use auto, systemd or direct.`);
}

function parseSandbox(text: string): SandboxSetting {
  const known = SANDBOX_SETTINGS.find((setting) => setting === text);
  if (known !== undefined) return known;
  throw new OutliveError(
    'usage',
    `OUTLIVE_SANDBOX is "${text}"; use one of ${SANDBOX_SETTINGS.join(', ')}.`,
  );
}

/** Null unless it is this process that systemd expects to hear from (sd_watchdog_enabled(3)). */
function parseWatchdog(env: Environment): number | null {
  const microseconds = set(env['WATCHDOG_USEC']);
  if (microseconds === undefined || !/^[1-9]\d{0,14}$/.test(microseconds)) return null;
  const pid = set(env['WATCHDOG_PID']);
  return pid === undefined || pid === String(process.pid) ? Number(microseconds) / 1_000 : null;
}

/** Reads config.json; a missing file is the default configuration. */
export function readConfigFile(file: string): ConfigFile {
  const unreadable = (reason: string): OutliveError =>
    new OutliveError('config_unreadable', `${file}: ${reason}. Mend the file or move it away.`);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return configFileSchema.parse({});
    throw unreadable((error as Error).message);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw unreadable(`not valid JSON (${(error as Error).message})`);
  }
  const parsed = configFileSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(
    (issue) => `${issue.path.join('.') || '(top)'}: ${issue.message}`,
  );
  throw unreadable(issues.join('; '));
}

/** A relative path means nothing to a daemon; the XDG specification says to ignore it. */
const absolute = (value: string | undefined): string | undefined =>
  value !== undefined && path.isAbsolute(value) ? value : undefined;

/** systemd hands in a colon-separated list; the first entry is ours. */
const handedIn = (env: Environment, name: string): string | undefined =>
  absolute(env[name]?.split(':')[0]);

function directories(env: Environment, workspace: string, home: string): Directories {
  const xdg = (name: string, fallback: string): string =>
    absolute(env[name]) ?? path.join(home, fallback);
  const state =
    handedIn(env, 'STATE_DIRECTORY') ??
    path.join(xdg('XDG_STATE_HOME', '.local/state'), 'outlive', workspace);
  // Only a login makes /run/user/UID; where nobody has logged in a directory of ours serves.
  const usual = `/run/user/${os.userInfo().uid}`;
  const userRuntime =
    absolute(env['XDG_RUNTIME_DIR']) ?? (existsSync(usual) ? usual : path.join(state, 'run'));
  const runtime =
    handedIn(env, 'RUNTIME_DIRECTORY') ?? path.join(userRuntime, 'outlive', workspace);
  const config =
    handedIn(env, 'CONFIGURATION_DIRECTORY') ??
    path.join(xdg('XDG_CONFIG_HOME', '.config'), 'outlive');
  return {
    configFile: path.join(config, 'config.json'),
    state,
    store: path.join(state, 'store'),
    attempts: path.join(state, 'attempts'),
    sessions: path.join(state, 'sessions'),
    exits: path.join(state, 'exits'),
    temporary: path.join(state, 'tmp'),
    decisions: path.join(state, 'decisions'),
    direct: path.join(state, 'direct'),
    token: path.join(state, 'token'),
    userRuntime,
    runtime,
    apiSocket: path.join(runtime, 'api', 'api.sock'),
    cache: path.join(xdg('XDG_CACHE_HOME', '.cache'), 'outlive'),
  };
}

function pick(env: Environment, names: readonly string[]): Record<string, string> {
  const entries = names.flatMap((name) => {
    const value = env[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries(entries);
}

/** A key comes from the environment, else from a credential of that name. */
function readKeys(env: Environment, names: readonly string[]): Record<string, string> {
  const directory = set(env['CREDENTIALS_DIRECTORY']);
  const entries = names.flatMap((name) => {
    const value = set(env[name]) ?? (directory && readCredential(path.join(directory, name)));
    return value ? [[name, value] as const] : [];
  });
  return Object.fromEntries(entries);
}

function readCredential(file: string): string | undefined {
  try {
    return set(readFileSync(file, 'utf8').replace(/\n$/, ''));
  } catch {
    return undefined; // Not handed in: the key is simply not there, and Pi says so itself.
  }
}

/**
 * Everything outlive takes from its surroundings, for one workspace.
 * @throws OutliveError `usage` for a bad workspace name, `config_unreadable` for config.json.
 */
export function loadConfig(
  env: Environment,
  options: { workspace?: string | undefined } = {},
): Config {
  const workspace = parseWorkspace(options.workspace ?? set(env['OUTLIVE_WORKSPACE']) ?? 'main');
  const info = os.userInfo();
  const home = absolute(env['HOME']) ?? info.homedir;
  const places = directories(env, workspace, home);
  const file = readConfigFile(places.configFile);
  // A key is handed to Pi as a credential, never in an environment others may read.
  const passed = [...RUNNER_VARIABLES, ...file.passEnvironment].filter(
    (name) => !file.keyVariables.includes(name),
  );
  const runnerEnvironment = {
    ...pick(env, passed),
    HOME: home,
    ...(file.pi.agentDir ? { PI_CODING_AGENT_DIR: file.pi.agentDir } : {}),
    ...file.environment,
  };
  return {
    workspace,
    directories: places,
    file,
    executor: parseExecutor(set(env['OUTLIVE_EXECUTOR']) ?? 'auto'),
    sandbox: parseSandbox(set(env['OUTLIVE_SANDBOX']) ?? file.sandbox.mode),
    busAddress: set(env['DBUS_SESSION_BUS_ADDRESS']) ?? `unix:path=${places.userRuntime}/bus`,
    notifySocket: set(env['NOTIFY_SOCKET']) ?? null,
    watchdogMs: parseWatchdog(env),
    runnerEnvironment,
    keys: readKeys(env, file.keyVariables),
    umask: file.umask === undefined ? process.umask() : Number.parseInt(file.umask, 8),
    home,
    user: info.username,
    logLevel: parseLogLevel(set(env['OUTLIVE_LOG_LEVEL']) ?? 'info'),
    port: parsePort(set(env['OUTLIVE_PORT']), file.api.port),
    linear: linearConfig(file.linear, set(env['CREDENTIALS_DIRECTORY'])),
    shutdown: parseShutdown(env),
    fault: set(env['OUTLIVE_FAULT']) ?? null,
  };
}
