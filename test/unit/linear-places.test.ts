/** Where work trees lie: never where a nest would hide them. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { linearPlaces } from '../../src/daemon/linear-places.ts';
import { sandboxPlaces } from '../../src/daemon/sandbox-places.ts';

const made: string[] = [];
afterEach(() => {
  for (const directory of made.splice(0)) rmSync(directory, { recursive: true });
});

const isWithin = (outer: string, inner: string): boolean =>
  !path.relative(outer, inner).startsWith('..');

describe('the places of the Linear agent', () => {
  it.each([
    {},
    { XDG_STATE_HOME: '/var/lib/me' },
    { STATE_DIRECTORY: '/var/lib/private/agent' },
    { OUTLIVE_WORKSPACE: 'other' },
  ])('are seen in a nest, and what is known of them is not: %j', (env) => {
    const config = loadConfig({ HOME: '/home/me', XDG_RUNTIME_DIR: '/run/user/7', ...env });
    const { hidden } = sandboxPlaces(config).nest;
    const { trees, records, locks } = linearPlaces(config);
    const isHidden = (file: string): boolean => hidden.some((each) => isWithin(each, file));
    expect([trees, records, locks].map(isHidden)).toEqual([false, true, true]);
    expect(trees).toContain(config.workspace === 'other' ? 'other' : '');
  });

  it('and none of the app’s secrets is seen by what runs', () => {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-places-'));
    made.push(directory);
    const secrets = ['webhookSecretFile', 'clientSecretFile', 'tokensFile'];
    const named = Object.fromEntries(secrets.map((name) => [name, `/secrets/${name}`]));
    mkdirSync(path.join(directory, 'outlive'));
    const text = JSON.stringify({ linear: { clientId: 'app', ...named } });
    writeFileSync(path.join(directory, 'outlive/config.json'), text);
    const config = loadConfig({ HOME: '/home/me', XDG_CONFIG_HOME: directory });
    const { nest, unit } = sandboxPlaces(config);
    const files = Object.values(named);
    expect(nest.veiled).toEqual(expect.arrayContaining(files));
    expect(unit.inaccessible).toEqual(expect.arrayContaining(files.map((file) => `-${file}`)));
  });
});
