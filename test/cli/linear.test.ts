/** `outlive linear` as a process: against a scripted daemon, and a double of Linear. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isSigned } from '../../src/linear/signature.ts';
import { type LinearDouble, startLinearDouble } from '../support/linear-double/server.ts';
import { FakeDaemon, json } from './fake-daemon.ts';
import { outlive } from './outlive.ts';

const SECRETS = { client: 'client-secret-of-the-test', webhook: 'webhook-secret-of-the-test' };
const QUIET = {
  authProblem: null,
  permissions: null,
  appUserId: 'app-1',
  organizationId: 'org-1',
  deliveries: { lastReceivedAt: '2027-02-03T10:00:00.000Z', new: 0, failed: 0 },
  outbox: { pending: 0, failed: 0, oldestPendingAt: null },
  openSessions: 0,
  openTurns: 0,
  sweep: { lastAt: null, problem: null },
  budget: { requests: null, complexity: null, closedUntil: null },
};

let home: string;
let daemon: FakeDaemon;
let linear: LinearDouble;
let status: object | null;
/** What the daemon's ingress was started with. */
let ingressSecret: string;

beforeEach(async () => {
  home = mkdtempSync(path.join(os.tmpdir(), 'outlive-setup-'));
  linear = await startLinearDouble({ clientSecret: SECRETS.client });
  [status, ingressSecret] = [QUIET, SECRETS.webhook];
  daemon = await new FakeDaemon(({ url, headers, body }, response) => {
    if (url.pathname === '/linear/status') {
      return json(response, 200, { configured: status !== null, status });
    }
    const good = isSigned(ingressSecret, Buffer.from(body), headers['linear-signature']);
    json(response, good ? 200 : 401, { ok: good });
  }).listen();
});
afterEach(async () => {
  await daemon.dispose();
  await linear.close();
  rmSync(home, { recursive: true });
});

const file = (name: string): string => path.join(home, name);

function configure(more: object = {}): void {
  mkdirSync(file('outlive'), { recursive: true });
  mkdirSync(file('app/.git'), { recursive: true });
  for (const [name, secret] of Object.entries(SECRETS)) {
    writeFileSync(file(name), `${secret}\n`, { mode: 0o600 });
  }
  const section = {
    clientId: linear.oauth.clientId,
    clientSecretFile: file('client'),
    webhookSecretFile: file('webhook'),
    url: linear.url,
    repositories: [{ path: file('app') }],
    ...more,
  };
  writeFileSync(file('outlive/config.json'), JSON.stringify({ linear: section }));
}

const run = (...args: string[]) =>
  outlive(['linear', ...args], {
    runtimeDirectory: daemon.runtimeDirectory,
    env: { HOME: home, XDG_CONFIG_HOME: home },
  });

interface Checked {
  readonly code: number | null;
  /** By step. */
  readonly steps: Readonly<Record<string, string>>;
  readonly advice: readonly string[];
}

async function checked(): Promise<Checked> {
  const { code, stdout, stderr } = await run('setup', '--check', '--json');
  for (const secret of Object.values(SECRETS)) expect(stdout + stderr).not.toContain(secret);
  const { steps } = JSON.parse(stdout) as {
    steps: { step: string; verdict: string; advice: string | null }[];
  };
  return {
    code,
    steps: Object.fromEntries(steps.map(({ step, verdict }) => [step, verdict])),
    advice: steps.flatMap(({ advice }) => advice ?? []),
  };
}

const ALL_OK = {
  'config.json': 'ok',
  'webhook secret': 'ok',
  'client secret': 'ok',
  token: 'ok',
  'app user': 'ok',
  repositories: 'ok',
  daemon: 'ok',
  webhook: 'ok',
  'from Linear': 'ok',
};

describe('outlive linear setup', () => {
  it('checks every step, with Linear and with the daemon, and shows no secret', async () => {
    configure();
    expect(await checked()).toEqual({ code: 0, steps: ALL_OK, advice: [] });
    expect(linear.violations()).toEqual([]);
  });

  it('says what to do in Linear and here, also before anything is configured', async () => {
    const { code, stdout, stderr } = await run('setup');
    expect(code).toBe(1);
    expect(stdout).toContain('Agent session events');
    expect(stdout).toContain('install -m 600 /dev/stdin');
    expect(stdout).toContain('actor=app');
    expect(stderr).toContain(`Next: add the section "linear" to ${file('outlive/config.json')}`);
  });

  it('finds a secret that others can read, one that is empty and one that is missing', async () => {
    configure({ webhookSecretFile: file('nothing') });
    chmodSync(file('client'), 0o644);
    const one = await checked();
    expect(one.steps).toMatchObject({
      'webhook secret': 'problem',
      'client secret': 'problem',
      token: 'skipped',
      webhook: 'skipped',
    });
    expect(one.advice).toContain(`chmod 600 ${file('client')}`);
    writeFileSync(file('nothing'), '\n', { mode: 0o600 });
    expect(await checked()).toMatchObject({ code: 1, steps: { 'webhook secret': 'problem' } });
  });

  it('finds an app whose secret is another, and one that may not mint', async () => {
    configure();
    writeFileSync(file('client'), 'another');
    expect(await checked()).toMatchObject({ code: 1, steps: { token: 'problem' } });
    writeFileSync(file('client'), SECRETS.client);
    linear.oauth.allowsClientCredentials = false;
    const { stdout } = await run('setup', '--check');
    expect(stdout).toMatch(/problem +token +.*client_credentials/);
  });

  it('finds another organization, and a repository that is not there', async () => {
    configure({ organizationId: 'elsewhere', repositories: [{ path: file('gone') }] });
    expect((await checked()).steps).toMatchObject({
      'app user': 'problem',
      repositories: 'problem',
    });
  });

  it('finds a daemon with another webhook secret, without Linear, and none', async () => {
    configure();
    ingressSecret = 'older';
    expect((await checked()).steps).toMatchObject({ daemon: 'ok', webhook: 'problem' });
    status = null;
    expect((await checked()).steps).toMatchObject({ daemon: 'problem', webhook: 'skipped' });
    await daemon.die();
    expect((await checked()).steps).toMatchObject({ daemon: 'problem', webhook: 'skipped' });
  });
});

describe('outlive linear status', () => {
  it('shows how it is, and exits 1 without auth', async () => {
    const good = await run('status');
    expect(good).toMatchObject({ code: 0, stderr: '' });
    expect(good.stdout).toMatch(/app user +app-1/);
    status = {
      ...QUIET,
      authProblem: { code: 'x', message: 'mend', since: '2027-02-03T10:00:00.000Z' },
    };
    expect(await run('status', '--json')).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('"message":"mend"'),
    });
    status = null;
    const none = await run();
    expect(none.code).toBe(0);
    expect(none.stderr).toContain('outlive linear setup');
  });
});
