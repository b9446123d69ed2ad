/** The section `linear` of config.json, and that its secret is nobody's but the daemon's. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Config, loadConfig } from '../../src/config.ts';
import { webhookSecret } from '../../src/daemon/linear.ts';
import { sandboxPlaces } from '../../src/daemon/sandbox-places.ts';

let home: string;
beforeEach(() => {
  home = mkdtempSync(path.join(os.tmpdir(), 'outlive-linear-'));
});
afterEach(() => {
  rmSync(home, { recursive: true, force: true });
});

function load(file: object, env: Readonly<Record<string, string>> = {}): Config {
  const directory = path.join(home, '.config', 'outlive');
  mkdirSync(directory, { recursive: true });
  writeFileSync(path.join(directory, 'config.json'), JSON.stringify(file));
  return loadConfig({ HOME: home, XDG_RUNTIME_DIR: '/run/user/1000', ...env });
}

describe('linear', () => {
  it('is off where nothing is said', () => {
    const config = load({});
    expect(config.linear).toBeNull();
    expect(webhookSecret(config)).toBeNull();
  });

  it('has its secret in a file, which is read without the newline of an editor', () => {
    const webhookSecretFile = path.join(home, 'secret');
    writeFileSync(webhookSecretFile, 'lin_wh_1\n');
    const config = load({ linear: { webhookSecretFile, organizationId: 'o' } });
    expect(config.linear).toMatchObject({ webhookSecretFile, organizationId: 'o', app: null });
    expect(webhookSecret(config)).toBe('lin_wh_1');
  });

  it('or in a credential of the unit', () => {
    const env = { CREDENTIALS_DIRECTORY: '/run/credentials/x' };
    expect(load({ linear: { webhookSecretCredential: 'linear' } }, env).linear).toMatchObject({
      webhookSecretFile: '/run/credentials/x/linear',
      organizationId: null,
    });
  });

  it('names the app, whose secret is in a file or a credential, and where Linear is', () => {
    const section = { webhookSecretFile: '/a', clientId: 'app', url: 'http://127.0.0.1:1/' };
    const { linear } = load({ linear: { ...section, clientSecretFile: '/b', tokensFile: '/c' } });
    expect(linear).toMatchObject({
      app: { clientId: 'app', clientSecretFile: '/b', tokensFile: '/c' },
      urls: { api: 'http://127.0.0.1:1/graphql', token: 'http://127.0.0.1:1/oauth/token' },
    });
    const env = { CREDENTIALS_DIRECTORY: '/run/credentials/x' };
    const handedIn = load({ linear: { ...section, clientSecretCredential: 'b' } }, env).linear;
    expect(handedIn?.app).toMatchObject({
      clientSecretFile: '/run/credentials/x/b',
      tokensFile: null,
    });
  });

  it.each([
    [{}],
    [{ webhookSecretFile: '/a', clientId: 'app' }],
    [{ webhookSecretFile: '/a', clientSecretFile: '/b' }],
    [{ webhookSecretFile: '/a', url: 'file:///etc' }],
    [{ webhookSecretFile: '/a', repositories: [{ path: 'relative' }] }],
    [{ webhookSecretFile: '/a', repositories: [{ path: '/r' }, { path: '/r' }] }],
    [{ webhookSecretFile: '/a', repositories: [{ path: '/r', branchPrefix: '-x' }] }],
    [
      {
        webhookSecretFile: '/a',
        clientId: 'x',
        clientSecretFile: '/b',
        clientSecretCredential: 'c',
      },
    ],
    [{ webhookSecretFile: '/a', webhookSecretCredential: 'a' }],
    [{ webhookSecretFile: 'relative' }],
    [{ webhookSecretCredential: '../token' }],
    [{ webhookSecretFile: '/a', organizationId: '' }],
    [{ webhookSecretFile: '/a', webhookSecret: 'in plain sight' }],
  ])('is refused as %j', (linear) => {
    expect(() => load({ linear })).toThrow(/linear/);
  });

  it('is read by the daemon only: a command does not need the file', () => {
    const config = load({ linear: { webhookSecretFile: '/nowhere/at/all' } });
    expect(() => webhookSecret(config)).toThrow(/\/nowhere\/at\/all.*cannot be read \(ENOENT\)/);
  });
});

describe('the secret’s file', () => {
  it('is hidden from attempts, in a unit and in a nest', () => {
    const config = load({ linear: { webhookSecretFile: '/etc/linear-secret' } });
    const { unit, nest } = sandboxPlaces(config);
    expect(unit.inaccessible).toContain('-/etc/linear-secret');
    expect(nest.veiled).toContain('/etc/linear-secret');
  });

  it('that was not handed over is no place to hide', () => {
    const config = load({ linear: { webhookSecretCredential: 'linear' } });
    const { unit, nest } = sandboxPlaces(config);
    for (const place of [...unit.inaccessible, ...nest.veiled]) expect(place).toMatch(/^-?\//);
  });
});
