/**
 * Configuration: the one reader of process.env and of config.json.
 *
 * What systemd hands in (STATE_DIRECTORY, RUNTIME_DIRECTORY, CONFIGURATION_DIRECTORY)
 * wins over the XDG base directories; both are documented in docs/operations.md.
 */
import { readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { OutliveError } from './domain/errors.ts';
import { workspaceSchema } from './domain/names.ts';

const variableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'not a variable name');

const slots = z.int().min(1).max(10_000);

/** config.json. Every key is optional; an unknown key is an error that names it. */
export const configFileSchema = z
  .strictObject({
    api: z
      .strictObject({
        /** TCP port on 127.0.0.1; 0 takes any free one, null opens none. */
        port: z.int().min(0).max(65535).nullable().default(5187),
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
  readonly decisions: string;
  readonly token: string;
  /** `$XDG_RUNTIME_DIR`: the user manager's own. */
  readonly userRuntime: string;
  readonly runtime: string;
  readonly apiSocket: string;
  readonly cache: string;
}

export interface Config {
  readonly workspace: string;
  readonly directories: Directories;
  readonly file: ConfigFile;
  readonly busAddress: string;
  /** NOTIFY_SOCKET when a service manager waits for READY=1. */
  readonly notifySocket: string | null;
  /** WATCHDOG_USEC in milliseconds, when the service manager waits for a sign of life from us. */
  readonly watchdogMs: number | null;
  /** What a daemon that is told to stop does with its attempts: OUTLIVE_SHUTDOWN. */
  readonly shutdown: 'detach' | 'suspend';
  /** How long attempts have before they are suspended at a shutdown: SHUTDOWN_GRACE_MS. */
  readonly shutdownGraceMs: number;
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

function parsePort(text: string | undefined, fromFile: number | null): number | null {
  if (text === undefined) return fromFile;
  if (text === 'none') return null;
  if (/^\d{1,5}$/.test(text) && Number(text) <= 65535) return Number(text);
  throw new OutliveError(
    'usage',
    `OUTLIVE_PORT is "${text}"; use a port, 0 for any free one, or "none".`,
  );
}

function parseShutdown(text: string): 'detach' | 'suspend' {
  if (text === 'detach' || text === 'suspend') return text;
  throw new OutliveError(
    'usage',
    `OUTLIVE_SHUTDOWN is "${text}"; use detach (attempts run on) or suspend.`,
  );
}

const SHUTDOWN_GRACE_MS = 60_000;
/** A day: longer is a mistake, and no service manager waits for it. */
const SHUTDOWN_GRACE_MAX_MS = 86_400_000;

/** Read literally: milliseconds, whole, and nothing else. */
function parseShutdownGrace(text: string | undefined): number {
  if (text === undefined) return SHUTDOWN_GRACE_MS;
  if (/^\d{1,8}$/.test(text) && Number(text) <= SHUTDOWN_GRACE_MAX_MS) return Number(text);
  throw new OutliveError(
    'usage',
    `SHUTDOWN_GRACE_MS is "${text}"; use milliseconds, 0 to ${SHUTDOWN_GRACE_MAX_MS}.`,
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
  const userRuntime = absolute(env['XDG_RUNTIME_DIR']) ?? `/run/user/${os.userInfo().uid}`;
  const state =
    handedIn(env, 'STATE_DIRECTORY') ??
    path.join(xdg('XDG_STATE_HOME', '.local/state'), 'outlive', workspace);
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
    decisions: path.join(state, 'decisions'),
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
    busAddress: set(env['DBUS_SESSION_BUS_ADDRESS']) ?? `unix:path=${places.userRuntime}/bus`,
    notifySocket: set(env['NOTIFY_SOCKET']) ?? null,
    watchdogMs: parseWatchdog(env),
    shutdown: parseShutdown(set(env['OUTLIVE_SHUTDOWN']) ?? 'detach'),
    shutdownGraceMs: parseShutdownGrace(set(env['SHUTDOWN_GRACE_MS'])),
    runnerEnvironment,
    keys: readKeys(env, file.keyVariables),
    umask: file.umask === undefined ? process.umask() : Number.parseInt(file.umask, 8),
    home,
    user: info.username,
    logLevel: parseLogLevel(set(env['OUTLIVE_LOG_LEVEL']) ?? 'info'),
    port: parsePort(set(env['OUTLIVE_PORT']), file.api.port),
    fault: set(env['OUTLIVE_FAULT']) ?? null,
  };
}
