/** A driver of the real Pi through daemons that are killed and a machine that is rebooted. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ScriptedModel, startScriptedModel } from '../support/scripted-model/server.ts';
import { hostName, needsRoot, ok, root } from './support.ts';

let model: ScriptedModel;
beforeEach(async () => {
  model = await startScriptedModel({ apiKey: 'test-key' });
});
afterEach(async () => {
  await model.close();
});

const TASKS = 30;
const ENVIRONMENT = `export PATH=/opt/outlive/node_modules/.bin:/opt/outlive/ops/scripts:$PATH \
  PI_CODING_AGENT_DIR=$HOME/agent PI_OFFLINE=1 OUTLIVE_PORT=none NO_COLOR=1; mkdir -p ~/tree; cd ~/tree`;
const inside = (name: string, script: string): Promise<string> =>
  ok('exec', name, '--', 'sh', '-ec', `${ENVIRONMENT}; ${script}`);
const CHILD = 'node /opt/outlive/test/host/children/await.mjs';

/** The act is one system call: it is done or not, and a second time is told. */
const PROMPT = [
  'Do as the script says.',
  '#script',
  'bash sleep 0.3; mkdir done/{{handle}} || echo {{handle}} >> twice',
  'say Done',
  '#end',
].join('\n');

const KILL = `kill -9 "$(outlive daemon status --json | node -pe 'JSON.parse(require("fs").readFileSync(0)).pid')"`;
/** As many as that are done: told by the directory, whoever makes them. */
const untilDone = (count: number): string =>
  `node -e '
    const { readdirSync, watch } = require("fs");
    const look = () => readdirSync("done").length >= ${count} && process.exit();
    watch("done", look); look();'`;

interface Line {
  readonly attemptId: string;
  readonly handle: string;
  readonly result: string;
  readonly outcome: string | null;
}

describe.skipIf(!root)(`a driver over a folder of tasks${needsRoot}`, () => {
  it('S2: thirty files, two killed daemons and a reboot: each worked once, verified, one line an attempt; row 148', async () => {
    const name = hostName();
    await ok('up', name);
    await inside(
      name,
      `${CHILD} lab "$PI_CODING_AGENT_DIR" ${model.baseUrl}
       mkdir todo done; for n in $(seq -w 1 ${TASKS}); do : >todo/t$n; done
       printf '%s' '${PROMPT}' >../prompt
       outlive daemon start
       outlive driver add folder --every 1s --max-at-once 6 --census '/opt/outlive/ops/census/folder .' \\
         --prompt-file ../prompt --model lab/scripted --verify 'test -d "done/$OUTLIVE_HANDLE"' >/dev/null
       ${untilDone(4)}; ${KILL}; outlive daemon start; ${untilDone(10)}; ${KILL}; outlive daemon start; ${untilDone(16)}`,
    );
    await ok('reboot', name);
    const told = await inside(
      name,
      `outlive daemon status >/dev/null 2>&1 || outlive daemon start >/dev/null; ${untilDone(TASKS)}
       outlive driver pause folder >/dev/null; outlive drain --wait >/dev/null
       ls done | wc -l; ! test -e twice; outlive ledger --json`,
    );
    const [count, ...rest] = told.trim().split('\n');
    expect(Number(count)).toBe(TASKS);
    const lines = rest.map((line) => JSON.parse(line) as Line);
    expect(new Set(lines.map(({ attemptId }) => attemptId)).size, 'one line an attempt').toBe(
      lines.length,
    );
    const done = lines.filter(({ outcome }) => outcome === 'satisfied');
    expect(done.map(({ handle }) => handle).sort()).toEqual(
      Array.from({ length: TASKS }, (_, n) => `t${String(n + 1).padStart(2, '0')}`),
    );
    expect(model.violations()).toEqual([]);
  }, 300_000);
});
