/** The machine or its user manager goes away under a run: for real, with the real Pi. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { WorkUnitView } from '../../src/api/schemas.ts';
import { type ScriptedModel, startScriptedModel } from '../support/scripted-model/server.ts';
import { asRoot, hostName, needsRoot, ok, root } from './support.ts';

let model: ScriptedModel;
beforeEach(async () => {
  model = await startScriptedModel({ apiKey: 'test-key' });
});
afterEach(async () => {
  await model.close();
});

const ENVIRONMENT = `export PATH=/opt/outlive/node_modules/.bin:/opt/outlive/ops/scripts:$PATH \
  PI_CODING_AGENT_DIR=$HOME/agent PI_OFFLINE=1 OUTLIVE_PORT=none NO_COLOR=1; mkdir -p ~/tree; cd ~/tree`;
const inside = (name: string, script: string): Promise<string> =>
  ok('exec', name, '--', 'sh', '-ec', `${ENVIRONMENT}; ${script}`);
const CHILD = 'node /opt/outlive/test/host/children/await.mjs';

const UID = '1000';
const MANAGER = `user@${UID}.service`;

const PROMPT = [
  'Do as the script says.',
  '#script',
  'bash echo once >> effects; touch begun; sleep 600',
  'say All done',
  '#end',
].join('\n');

/** A host with a daemon and a Pi run in the middle of a tool call. */
async function hostWithRun(): Promise<string> {
  const name = hostName();
  await ok('up', name);
  await inside(
    name,
    `${CHILD} lab "$PI_CODING_AGENT_DIR" ${model.baseUrl}; outlive daemon start
     printf '%s' '${PROMPT}' >prompt
     outlive run --handle job --model lab/scripted --prompt-file prompt --detach
     echo 'Say hello' >later
     outlive run --handle later --model lab/scripted --prompt-file later --detach
     outlive run --handle other --runner command --detach -- sh -c 'echo once >>command-effects; exec sleep 600'
     ${CHILD} file ~/tree/begun; ${CHILD} file ~/tree/command-effects`,
  );
  return name;
}

async function ended(name: string, handle: string): Promise<WorkUnitView> {
  const shown = await inside(
    name,
    `outlive logs ${handle} --follow >/dev/null 2>&1 || :; outlive show ${handle} --json`,
  );
  return JSON.parse(shown) as WorkUnitView;
}

describe.skipIf(!root)(`the machine goes away under a run${needsRoot}`, () => {
  it.each([
    ['an orderly reboot', async (name: string) => void (await ok('reboot', name))],
    [
      'a power cut',
      async (name: string) => {
        await ok('crash', name);
        await ok('up', name);
      },
    ],
    [
      'loginctl terminate-user',
      async (name: string) => {
        await asRoot(name, 'loginctl', 'terminate-user', UID);
        await asRoot(name, 'systemctl', 'restart', MANAGER);
      },
    ],
    [
      'systemctl --user exit',
      async (name: string) => {
        await inside(name, 'systemctl --user exit');
        // Ends it where the exit is still under way, and starts the next one.
        await asRoot(name, 'systemctl', 'stop', MANAGER);
        await asRoot(name, 'systemctl', 'start', MANAGER);
      },
    ],
  ])(
    '%s: Pi goes on in its conversation, a command fails, nobody cancelled anything, nobody else gets the work tree; row 126, row 262, T06 systemd#43361, T12 systemd#13485',
    async (_, goAway) => {
      const name = await hostWithRun();
      await goAway(name);
      await inside(name, 'outlive daemon status >/dev/null 2>&1 || outlive daemon start');

      const job = await ended(name, 'job');
      expect(job.attempts.map(({ status, errorCode }) => [status, errorCode])).toEqual([
        ['lost', 'host_shutdown'],
        ['succeeded', null],
      ]);
      expect(job.attempts[1]?.result?.text).toBe('All done');

      // It waited for the work tree, which was nobody's between the loss and the next attempt.
      const later = await ended(name, 'later');
      expect(later.attempts.map(({ status }) => status)).toEqual(['succeeded']);
      const freed = Date.parse(job.attempts[1]?.endedAt ?? '');
      expect(Date.parse(later.attempts[0]?.createdAt ?? '')).toBeGreaterThanOrEqual(freed);

      const other = await ended(name, 'other');
      expect([other.status, other.errorCode]).toEqual([
        'failed',
        'runtime_interrupted_no_checkpoint',
      ]);
      expect(other.attempts.map(({ errorCode }) => errorCode)).toEqual(['host_shutdown']);
      expect(await inside(name, 'cat effects command-effects')).toBe('once\nonce\n');
      expect(model.violations()).toEqual([]);
    },
  );

  it('ask → power cut → boot → approve: the exact bash call runs once and Pi goes on; row 256', async () => {
    const name = hostName();
    await ok('up', name);
    const prompt = PROMPT.replace('; touch begun; sleep 600', '');
    const policy = JSON.stringify({ rules: [{ effect: 'ask', tool: 'bash' }] });
    await inside(
      name,
      `${CHILD} lab "$PI_CODING_AGENT_DIR" ${model.baseUrl}; outlive daemon start
       printf '%s' '${prompt}' >prompt
       outlive run --handle job --model lab/scripted --prompt-file prompt --tool-policy '${policy}' --detach
       # Not a pipe: whoever follows would be waited for, and the run does not go on.
       bash -ec 'exec 3< <(exec outlive events job --follow 2>/dev/null); grep -q approval.requested <&3; kill $!'; test ! -e effects`,
    );
    await ok('crash', name);
    await ok('up', name);
    await inside(
      name,
      `outlive daemon start; outlive approvals | grep -q 'echo once'; outlive approve job; outlive approve "$(
        outlive approvals --all --json | node -pe 'JSON.parse(require("fs").readFileSync(0)).items[0].id')"`,
    );
    const job = await ended(name, 'job');
    expect(job.attempts.map(({ status, errorCode }) => [status, errorCode])).toEqual([
      ['lost', 'host_shutdown'],
      ['succeeded', null],
    ]);
    expect(job.attempts[1]?.result?.text).toBe('All done');
    expect(await inside(name, 'cat effects')).toBe('once\n');
    expect(model.violations()).toEqual([]);
  });
});
