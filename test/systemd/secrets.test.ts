/** Secrets that an attempt can reach stand in nothing that the product writes or shows. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Rig, script, systemctl } from '../support/rig.ts';
import { writePiLab } from '../support/scripted-model/lab.ts';

const SECRETS = {
  model: 'Model-Planted-0123456789',
  auth: 'Auth-Planted-0123456789',
  credential: 'Credential-Planted-0123456789',
  token: `ghp_${'P1anted'.repeat(5)}`,
};

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create({ modelKey: SECRETS.model });
});
afterEach(async () => {
  await rig.end();
});

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name));
}

it('planted secrets are in no file, unit property, command line, journal line or answer', async () => {
  const agent = path.join(rig.base, 'agent');
  writeFileSync(
    path.join(agent, 'auth.json'),
    JSON.stringify({ other: { type: 'api_key', key: SECRETS.auth } }),
    { mode: 0o600 },
  );
  mkdirSync(path.dirname(rig.config.directories.configFile), { recursive: true });
  writeFileSync(
    rig.config.directories.configFile,
    JSON.stringify({ keyVariables: ['PLANTED_KEY'] }),
  );
  writeFileSync(path.join(rig.tree, 'token'), `${SECRETS.token}\n`);
  const daemon = await rig.startDaemon({ env: { PLANTED_KEY: SECRETS.credential } });
  const { id } = await rig.submit({
    // A nest keeps the command from most of it; what is printed all the same is to be redacted.
    sandbox: 'off',
    prompt: script(
      `bash cat "${agent}/auth.json" "${agent}/models.json" token; echo "key=$PLANTED_KEY"; echo up; until [ -e go ]; do sleep 0.1; done; echo "$PLANTED_KEY" >&2`,
      'say Done',
    ),
  });
  await rig.waitForEvent(
    id,
    ({ type, data }) => type === 'tool.update' && String(data['delta']).includes('up\n'),
    'the secrets to be printed',
  );
  const [attempt] = (await rig.client.getWorkUnit(id)).attempts;
  const shown = await systemctl('show', attempt?.unit ?? '');
  const group = `/sys/fs/cgroup${attempt?.controlGroup}/cgroup.procs`;
  const lines = readFileSync(group, 'utf8')
    .trim()
    .split('\n')
    .map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8'));
  writeFileSync(path.join(rig.tree, 'go'), '');
  const outcome = await rig.outcome(id);
  expect(outcome.workUnit.status).toBe('succeeded');
  await rig.unitsAreGone();
  const printed = outcome.events.find(({ type }) => type === 'tool.end');
  expect(printed?.data['result']).toContain('key=[redacted PLANTED_KEY]');
  const { state } = rig.config.directories;
  // The conversation is Pi's own file, and holds what the model saw.
  const written = filesBelow(state)
    .filter((file) => !file.startsWith(rig.config.directories.sessions))
    .map((file): [string, string] => [file, readFileSync(file, 'latin1')]);
  expect(written.length).toBeGreaterThan(5);
  const journal = execFileSync('journalctl', ['--user', '--no-pager', '-o', 'export'], {
    encoding: 'latin1',
    maxBuffer: 1 << 28,
  });
  const places: [string, string][] = [
    ...written,
    ['unit properties', shown],
    ['command lines', lines.join('\n')],
    ['journal', journal],
    ['log of the daemon', daemon.output()],
    ['answers', JSON.stringify(outcome)],
  ];
  const found = places.flatMap(([place, text]) =>
    Object.entries(SECRETS).flatMap(([name, value]) =>
      text.includes(value) ? [`${name} in ${place}`] : [],
    ),
  );
  expect(found).toEqual([]);
});

it('a key that the proxy keeps is used, and is in nothing that a command finds in its unit; row 284', async () => {
  const agent = path.join(rig.base, 'agent');
  await writePiLab(agent, { baseUrl: rig.model.baseUrl, apiKey: 'not-the-key' });
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  const proxied = { keyVariable: 'LAB_KEY', baseUrl: rig.model.baseUrl };
  const config = { keyVariables: ['LAB_KEY', 'PLANTED_KEY'], keyProxy: { lab: proxied } };
  writeFileSync(configFile, JSON.stringify(config));
  const env = { LAB_KEY: SECRETS.model, PLANTED_KEY: SECRETS.credential };
  await rig.startDaemon({ env });
  const { id } = await rig.submit({
    // What it could find where nothing is hidden from it.
    sandbox: 'off',
    prompt: script(
      'bash wrapper=$(ps -o ppid= -p $PPID | tr -d " "); { env; cat /proc/$PPID/environ /proc/$PPID/cmdline /proc/$wrapper/environ /proc/$wrapper/cmdline; find /run/user/$(id -u) -type f -readable -print -exec cat {} \\;; } > seen',
      'say Done',
    ),
  });
  const { workUnit } = await rig.outcome(id);
  expect(workUnit).toMatchObject({ status: 'succeeded' });
  expect(rig.model.violations(), 'the model demands the key').toEqual([]);
  const seen = readFileSync(path.join(rig.tree, 'seen'), 'latin1');
  expect(seen, 'it looked where credentials are').toMatch(/\/credentials\/.*\/PLANTED_KEY\n/);
  expect(seen).not.toContain(SECRETS.model);
  await rig.unitsAreGone();
});
