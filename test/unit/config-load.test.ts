import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Config, type Environment, loadConfig } from '../../src/config.ts';
import { OutliveError } from '../../src/domain/errors.ts';

let home: string;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'outlive-config-'));
});
afterEach(() => {
  rmSync(home, { recursive: true, force: true });
});

const configFile = (): string => path.join(home, '.config', 'outlive', 'config.json');

function writeConfig(content: unknown, file = configFile()): void {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
}

const load = (env: Environment = {}, workspace?: string): Config =>
  loadConfig({ HOME: home, XDG_RUNTIME_DIR: '/run/user/1000', ...env }, { workspace });

function refusal(work: () => unknown): OutliveError {
  try {
    work();
  } catch (error) {
    if (error instanceof OutliveError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

describe('keyProxy', () => {
  const acme = { keyVariable: 'ACME_KEY', baseUrl: 'https://api.acme.example/v1' };

  it('names a provider, the variable of its key and where it is', () => {
    writeConfig({ keyVariables: ['ACME_KEY'], keyProxy: { acme } });
    expect(load().file.keyProxy).toEqual({ acme: { ...acme, header: 'authorization' } });
  });

  it.each<[string, object, string]>([
    ['a variable that is none of keyVariables', { keyVariable: 'B' }, 'B is not in keyVariables'],
    ['another protocol', { baseUrl: 'ftp://a.example' }, 'is not an http or https URL'],
    ['a query', { baseUrl: 'https://a.example/?key=1' }, 'is not an http or https URL'],
    ['a password', { baseUrl: 'https://me:pw@a.example' }, 'is not an http or https URL'],
    ['no URL', { baseUrl: 'a.example' }, 'is not an http or https URL'],
    ['no name of a header', { header: 'x key' }, 'is not the name of a header'],
    ['a header of the connection', { header: 'Host' }, 'cannot carry a key'],
    ['two words', { scheme: 'Bearer my' }, 'is not a word'],
    ['the key itself', { key: 'secret' }, 'Unrecognized key'],
  ])('is refused with %s', (_, change, message) => {
    writeConfig({ keyVariables: ['ACME_KEY'], keyProxy: { acme: { ...acme, ...change } } });
    const { code, message: said } = refusal(load);
    expect([code, said]).toEqual(['config_unreadable', expect.stringContaining(message)]);
  });
});

describe('config.json', () => {
  it('need not be there', () => {
    expect(load().file).toMatchObject({
      api: { port: 5187 },
      keyVariables: [],
      passEnvironment: [],
      environment: {},
      retention: { days: 30, diskBudgetBytes: 5 * 1024 ** 3, intervalMinutes: 60 },
      captureBytes: 1_048_576,
    });
  });

  it('may be empty of everything', () => {
    writeConfig({});
    expect(load().file.api.port).toBe(5187);
  });

  it('is taken as it is', () => {
    const file = {
      api: { port: null, streamStallMs: 5_000 },
      pi: { command: ['/opt/pi', '--x'], agentDir: '/srv/agent' },
      keyVariables: ['A_KEY'],
      keyProxy: {
        acme: {
          keyVariable: 'A_KEY',
          baseUrl: 'https://api.acme.example/v1',
          header: 'x-api-key',
          scheme: 'Key',
        },
      },
      passEnvironment: ['EDITOR'],
      environment: { GREETING: 'hello' },
      limits: { runner: { pi: 2 }, provider: { acme: 3 }, media_provider: {} },
      retention: { days: null, diskBudgetBytes: null, intervalMinutes: 5 },
      presets: { fast: { provider: 'acme', model: 'small', maxParallel: 2 } },
      providerRetry: { maxAttempts: 2, maxDelayMs: 60_000 },
      breaker: { failures: 2, firstPauseMs: 1_000, maxPauseMs: 2_000 },
      spend: {
        timeZone: 'Europe/Berlin',
        day: { maxCostUsd: 20, maxTokens: 1_000 },
        kinds: { task_run: { maxCostUsd: 2.5 } },
      },
      approvals: {
        policy: { rules: [{ effect: 'ask', tool: 'bash' }], otherwise: 'allow' },
        kinds: { task_run: { rules: [], otherwise: 'ask' } },
        channels: { deploy: { rules: [], otherwise: 'deny' } },
        expireAfterMs: 5_000,
        suspendAfterMs: 1_000,
      },
      admission: { minFreeMemory: 1_048_576 },
      drivers: {},
      sandbox: { mode: 'unit' as const, hide: ['/home/me/.ssh'], show: ['/run/docker.sock'] },
      captureBytes: 4096,
    };
    writeConfig(file);
    expect(load().file).toEqual(file);
  });

  it.each<[string, unknown, string, RegExp]>([
    ['an unknown key', { prot: 1 }, '(top)', /unrecognized.*"prot"/i],
    ['an unknown key further in', { api: { host: '0.0.0.0' } }, 'api', /host/],
    ['a port that is a string', { api: { port: '5187' } }, 'api.port', /number/],
    ['a port out of range', { api: { port: 65_536 } }, 'api.port', /65535/],
    ['a Pi command that is a string', { pi: { command: 'pi' } }, 'pi.command', /array/],
    ['an empty Pi command', { pi: { command: [] } }, 'pi.command', /1/],
    ['a relative agent directory', { pi: { agentDir: 'agent' } }, 'pi.agentDir', /absolute/],
    ['a variable that is none', { keyVariables: ['A-B'] }, 'keyVariables.0', /variable name/],
    ['a value that is a number', { environment: { A: 1 } }, 'environment.A', /string/],
    ['a capture that is too small', { captureBytes: 1 }, 'captureBytes', /4096/],
    [
      'a pattern that is none',
      {
        approvals: {
          policy: { rules: [{ effect: 'deny', tool: '*', argument: { pattern: '(' } }] },
        },
      },
      'approvals.policy.rules.0.argument.pattern',
      /regular expression/,
    ],
    ['a negative age', { retention: { days: -1 } }, 'retention.days', /0\.01/],
    [
      'a budget too small',
      { retention: { diskBudgetBytes: 1 } },
      'retention.diskBudgetBytes',
      /1048576/,
    ],
    ['a list instead of an object', [], '(top)', /object/],
    ['null', 'null', '(top)', /object/],
  ])('with %s is refused by file, key and reason', (_what, content, key, reason) => {
    writeConfig(content);
    const error = refusal(load);
    expect(error.code).toBe('config_unreadable');
    expect(error.exit).toBe(2);
    expect(error.message).toContain(configFile());
    expect(error.message).toContain(`${key}:`);
    expect(error.message).toMatch(reason);
  });

  it('with several mistakes names them all', () => {
    writeConfig({ api: { port: -1 }, captureBytes: 'x', foo: 1 });
    const { message } = refusal(load);
    for (const key of ['api.port', 'captureBytes', 'foo']) expect(message).toContain(key);
  });

  it.each(['', '{', 'port = 1', '{"api":{"port":1},}', '// comment\n{}'])(
    'that is not JSON (%j) is refused by file and reason',
    (content) => {
      writeConfig(content);
      const error = refusal(load);
      expect(error.code).toBe('config_unreadable');
      expect(error.message).toContain(`${configFile()}: not valid JSON`);
    },
  );

  it('that cannot be read is refused by file and reason', () => {
    mkdirSync(configFile(), { recursive: true });
    const error = refusal(load);
    expect(error.code).toBe('config_unreadable');
    expect(error.message).toContain(configFile());
    expect(error.message).toContain('EISDIR');
  });

  it('gives a key that is also in environment no value there', () => {
    writeConfig({ keyVariables: ['A_KEY'], environment: { A_KEY: 'secret' } });
    const error = refusal(load);
    expect(error.message).toContain('environment.A_KEY');
    expect(error.message).not.toContain('secret');
  });
});

describe('the workspace', () => {
  it('is main, else of OUTLIVE_WORKSPACE, else of the command line', () => {
    expect(load().workspace).toBe('main');
    expect(load({ OUTLIVE_WORKSPACE: '' }).workspace).toBe('main');
    expect(load({ OUTLIVE_WORKSPACE: 'other' }).workspace).toBe('other');
    expect(load({ OUTLIVE_WORKSPACE: 'other' }, 'third').workspace).toBe('third');
  });

  it.each(['a-b', 'A', '../x', 'a b', '', 'w'.repeat(33), 'ü'])('is never %j', (name) => {
    const error = refusal(() => load({}, name));
    expect(error.code).toBe('usage');
    expect(error.message).toContain(`"${name}"`);
  });
});

describe('the directories', () => {
  it('are those of XDG by default', () => {
    const { directories } = load();
    const state = path.join(home, '.local/state/outlive/main');
    expect(directories).toEqual({
      configFile: configFile(),
      state,
      store: `${state}/store`,
      attempts: `${state}/attempts`,
      sessions: `${state}/sessions`,
      exits: `${state}/exits`,
      temporary: `${state}/tmp`,
      decisions: `${state}/decisions`,
      direct: `${state}/direct`,
      token: `${state}/token`,
      userRuntime: '/run/user/1000',
      runtime: '/run/user/1000/outlive/main',
      apiSocket: '/run/user/1000/outlive/main/api/api.sock',
      cache: path.join(home, '.cache/outlive'),
    });
  });

  it('follow the variables of XDG', () => {
    const { directories } = load({
      XDG_CONFIG_HOME: '/xdg/config',
      XDG_STATE_HOME: '/xdg/state',
      XDG_CACHE_HOME: '/xdg/cache',
      XDG_RUNTIME_DIR: '/xdg/run',
    });
    expect(directories).toMatchObject({
      configFile: '/xdg/config/outlive/config.json',
      state: '/xdg/state/outlive/main',
      cache: '/xdg/cache/outlive',
      runtime: '/xdg/run/outlive/main',
    });
  });

  it('ignore relative ones and empty ones, as XDG wants it', () => {
    const plain = load().directories;
    const relative = load({ XDG_CONFIG_HOME: 'c', XDG_STATE_HOME: './s', XDG_CACHE_HOME: '' });
    expect(relative.directories).toEqual(plain);
    const { userRuntime, state } = load({ XDG_RUNTIME_DIR: 'run' }).directories;
    // Where nobody has logged in there is no such directory, and one of ours stands for it.
    const usual = `/run/user/${os.userInfo().uid}`;
    expect(userRuntime).toBe(existsSync(usual) ? usual : path.join(state, 'run'));
  });

  it('are those that systemd hands in, before XDG', () => {
    const { directories } = load({
      STATE_DIRECTORY: '/sd/state',
      RUNTIME_DIRECTORY: '/sd/run',
      CONFIGURATION_DIRECTORY: '/sd/config',
      XDG_STATE_HOME: '/xdg/state',
      XDG_CONFIG_HOME: '/xdg/config',
    });
    expect(directories).toMatchObject({
      state: '/sd/state',
      store: '/sd/state/store',
      runtime: '/sd/run',
      apiSocket: '/sd/run/api/api.sock',
      configFile: '/sd/config/config.json',
    });
  });

  it('are the first of a list that systemd hands in', () => {
    const { directories } = load({ STATE_DIRECTORY: '/sd/one:/sd/two' });
    expect(directories.state).toBe('/sd/one');
  });

  it('keep workspaces apart', () => {
    const [one, other] = [load({}, 'one').directories, load({}, 'other').directories];
    expect(one.state).not.toBe(other.state);
    expect(one.runtime).not.toBe(other.runtime);
    expect(one.configFile).toBe(other.configFile);
  });

  it('are all absolute', () => {
    for (const env of [{}, { XDG_RUNTIME_DIR: 'r', STATE_DIRECTORY: 's', RUNTIME_DIRECTORY: '' }]) {
      for (const [name, place] of Object.entries(load(env).directories)) {
        expect(path.isAbsolute(place), `${name}: ${place}`).toBe(true);
      }
    }
  });
});

describe('the port', () => {
  it.each([
    [undefined, 5187],
    ['', 5187],
    ['0', 0],
    ['8080', 8080],
    ['65535', 65_535],
    ['none', null],
  ])('OUTLIVE_PORT=%j is %j', (text, port) => {
    expect(load({ OUTLIVE_PORT: text }).port).toBe(port);
  });

  it('of the environment wins over the file', () => {
    writeConfig({ api: { port: 4000 } });
    expect(load().port).toBe(4000);
    expect(load({ OUTLIVE_PORT: '5000' }).port).toBe(5000);
    expect(load({ OUTLIVE_PORT: 'none' }).port).toBeNull();
  });

  it('may be none by the file, too', () => {
    writeConfig({ api: { port: null } });
    expect(load().port).toBeNull();
    expect(load({ OUTLIVE_PORT: '0' }).port).toBe(0);
  });

  it.each(['-1', '65536', 'http', '80.5', '0x50', '1e3', ' 80', '80 ', '+80', 'None', '٨٠'])(
    'OUTLIVE_PORT=%j is refused by what it may be',
    (text) => {
      const error = refusal(() => load({ OUTLIVE_PORT: text }));
      expect(error.code).toBe('usage');
      expect(error.message).toContain(`"${text}"`);
    },
  );
});

describe('keys', () => {
  function credentials(files: Record<string, string>): string {
    const directory = path.join(home, 'credentials');
    mkdirSync(directory);
    for (const [name, value] of Object.entries(files)) {
      writeFileSync(path.join(directory, name), value);
    }
    return directory;
  }

  it('are read from the environment, those that are set', () => {
    writeConfig({ keyVariables: ['A_KEY', 'B_KEY', 'C_KEY'] });
    expect(load({ A_KEY: 'a', B_KEY: '' }).keys).toEqual({ A_KEY: 'a' });
  });

  it('are read from the credentials that systemd hands in, without the line end', () => {
    writeConfig({ keyVariables: ['A_KEY', 'B_KEY', 'C_KEY'] });
    const directory = credentials({ A_KEY: 'from a file\n', B_KEY: '', D_KEY: 'not named' });
    expect(load({ CREDENTIALS_DIRECTORY: directory }).keys).toEqual({ A_KEY: 'from a file' });
  });

  it('are of the environment first', () => {
    writeConfig({ keyVariables: ['A_KEY'] });
    const directory = credentials({ A_KEY: 'file' });
    expect(load({ CREDENTIALS_DIRECTORY: directory, A_KEY: 'env' }).keys).toEqual({ A_KEY: 'env' });
  });

  it('are in no environment of a runner, however it was asked for', () => {
    writeConfig({ keyVariables: ['A_KEY', 'HTTP_PROXY'], passEnvironment: ['A_KEY', 'EDITOR'] });
    const { runnerEnvironment, keys } = load({
      A_KEY: 'secret',
      HTTP_PROXY: 'http://user:pw@proxy',
      EDITOR: 'ed',
    });
    expect(keys).toEqual({ A_KEY: 'secret', HTTP_PROXY: 'http://user:pw@proxy' });
    expect(runnerEnvironment).toEqual({ HOME: home, EDITOR: 'ed' });
  });

  it('are nowhere else in the configuration', () => {
    writeConfig({ keyVariables: ['A_KEY'] });
    const { keys: _keys, ...rest } = load({ A_KEY: 'the-secret-itself' });
    expect(JSON.stringify(rest)).not.toContain('the-secret-itself');
  });
});

describe('the environment of runners', () => {
  it('is what the list allows, and nothing else of the daemon’s', () => {
    const { runnerEnvironment } = load({
      PATH: '/bin',
      LANG: 'C.UTF-8',
      AWS_SECRET_ACCESS_KEY: 'x',
      DBUS_SESSION_BUS_ADDRESS: 'unix:path=/x',
      NOTIFY_SOCKET: '/x',
      CREDENTIALS_DIRECTORY: '/x',
      OUTLIVE_FAULT: 'claimed',
      NODE_OPTIONS: '--inspect',
    });
    expect(runnerEnvironment).toEqual({ HOME: home, PATH: '/bin', LANG: 'C.UTF-8' });
  });

  it('has what config.json names and says', () => {
    writeConfig({
      passEnvironment: ['EDITOR', 'ABSENT'],
      environment: { GREETING: 'hello', LANG: 'de_DE.UTF-8' },
      pi: { agentDir: '/srv/agent' },
    });
    expect(load({ EDITOR: 'ed', LANG: 'C' }).runnerEnvironment).toEqual({
      HOME: home,
      EDITOR: 'ed',
      GREETING: 'hello',
      LANG: 'de_DE.UTF-8',
      PI_CODING_AGENT_DIR: '/srv/agent',
    });
  });
});

describe('the sandbox', () => {
  it('is as much as can be had, or as the file says, or as the environment says', () => {
    expect(load().sandbox).toBe('auto');
    writeConfig({ sandbox: { mode: 'nest' } });
    expect(load().sandbox).toBe('nest');
    expect(load({ OUTLIVE_SANDBOX: 'off' }).sandbox).toBe('off');
  });

  it('of another name is refused', () => {
    expect(() => load({ OUTLIVE_SANDBOX: 'jail' })).toThrow(
      /OUTLIVE_SANDBOX is "jail".*unit, nest/,
    );
  });
});

describe('the umask of runners', () => {
  it('is octal in the file, else the daemon’s own', () => {
    expect(load().umask).toBe(process.umask());
    writeConfig({ umask: '027' });
    expect(load().umask).toBe(0o027);
  });

  it.each([27, '27', '0o27', '888', ''])('is never %j', (umask) => {
    writeConfig({ umask });
    expect(refusal(load).message).toContain('umask:');
  });
});

describe('the rest of the surroundings', () => {
  it('has defaults', () => {
    expect(load()).toMatchObject({
      busAddress: 'unix:path=/run/user/1000/bus',
      notifySocket: null,
      home,
      user: os.userInfo().username,
      logLevel: 'info',
      fault: null,
    });
  });

  it('is taken from the environment', () => {
    expect(
      load({
        DBUS_SESSION_BUS_ADDRESS: 'unix:path=/elsewhere',
        NOTIFY_SOCKET: '@notify',
        OUTLIVE_LOG_LEVEL: 'debug',
        OUTLIVE_FAULT: 'claimed:2',
      }),
    ).toMatchObject({
      busAddress: 'unix:path=/elsewhere',
      notifySocket: '@notify',
      logLevel: 'debug',
      fault: 'claimed:2',
    });
  });

  it('refuses a log level that is none, by those there are', () => {
    const error = refusal(() => load({ OUTLIVE_LOG_LEVEL: 'loud' }));
    expect(error.code).toBe('usage');
    expect(error.message).toContain('"loud"');
    expect(error.message).toContain('debug');
  });
});

describe('what the service manager and a shutdown are told by', () => {
  it('a watchdog is ours when it names this process, or none', () => {
    expect(load().watchdogMs).toBeNull();
    expect(load({ WATCHDOG_USEC: '60000000' }).watchdogMs).toBe(60_000);
    const forUs = { WATCHDOG_USEC: '3000000', WATCHDOG_PID: String(process.pid) };
    expect(load(forUs).watchdogMs).toBe(3_000);
    expect(load({ ...forUs, WATCHDOG_PID: String(process.pid + 1) }).watchdogMs).toBeNull();
    expect(load({ WATCHDOG_USEC: '0' }).watchdogMs).toBeNull();
  });

  it('a shutdown detaches, with a grace of 60 s for what cannot', () => {
    expect(load()).toMatchObject({ shutdown: { mode: 'detach', graceMs: 60_000 } });
    const asked = load({ OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '0' });
    expect(asked).toMatchObject({ shutdown: { mode: 'suspend', graceMs: 0 } });
  });

  it.each([
    ['OUTLIVE_SHUTDOWN', 'kill'],
    ['SHUTDOWN_GRACE_MS', '60s'],
    ['SHUTDOWN_GRACE_MS', '-1'],
    ['SHUTDOWN_GRACE_MS', '1e3'],
    ['SHUTDOWN_GRACE_MS', '86400001'],
  ])('%s=%s is read literally and refused', (name, value) => {
    const error = refusal(() => load({ [name]: value }));
    expect(error.code).toBe('usage');
    expect(error.message).toContain(`${name} is "${value}"`);
  });
});
