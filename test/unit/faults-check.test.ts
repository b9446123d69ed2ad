/** What `check-faults.mjs` must notice, each in a small file of its own. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';

const SCRIPT = fileURLToPath(new URL('../../ops/scripts/check-faults.mjs', import.meta.url));
const run = promisify(execFile);

async function check(files: Readonly<Record<string, string>>): Promise<string> {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'faults-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(directory, name), text);
  try {
    await run(process.execPath, [SCRIPT, directory]);
    return '';
  } catch (error) {
    return (error as { stderr: string }).stderr.replaceAll(`${directory}/`, '');
  }
}

const body = (...lines: readonly string[]): string =>
  `// é: a byte is not a character\n\nexport async function end(context) {\n${lines.join('\n')}\n}\n`;
const COMMIT = 'context.writer.commit((transaction) => transaction.move());';
const STOP = 'await context.executor.stop(unit);';
const FAULT = "context.fault('intended');";

test('an intent that is acted on with a fault point between them passes', async () => {
  expect(await check({ 'a.ts': body(COMMIT, FAULT, STOP) })).toBe('');
});

test('an act on an intent without a point is told with both lines', async () => {
  expect(await check({ 'a.ts': body(COMMIT, STOP) })).toBe(
    'a.ts:5: end acts here on what it committed in line 4, and no fault point stands between\n',
  );
});

test.each<[string, string]>([
  ['a file that is written', "await writeFile(file, '');"],
  ['a file that is removed', 'await rm(file);'],
  ['a unit that is let go', 'await this.context.executor.release(unit);'],
])('%s is an act', async (_, act) => {
  expect(await check({ 'a.ts': body(COMMIT, act) })).toContain('a.ts:5: end acts here');
});

test('commit and act are seen through the functions that do them, in other files too', async () => {
  const files = {
    'decide.ts': `export const decide = (context) => {\n${COMMIT}\n};\n`,
    'a.ts': `import { decide } from './decide.ts';
class Watch {
  async step(context) {
    decide(context);
    await this.letGo(context);
  }
  private async letGo(context) {
    ${STOP}
  }
}
`,
  };
  expect(await check(files)).toContain('a.ts:5: step acts here on what it committed in line 4');
  const mended = { ...files, 'decide.ts': files['decide.ts'].replace('\n}', `\n${FAULT}\n}`) };
  expect(await check(mended)).toBe('');
});

test('a function that another one made is looked into', async () => {
  const maker = `function createDecider(context) {\nreturn () => {\n${COMMIT}\n};\n}\n`;
  const user = body('const decide = createDecider(context);', 'decide();', STOP);
  expect(await check({ 'a.ts': maker + user })).toContain('end acts here');
});

test('a branch that leaves has no part in what follows it', async () => {
  const leaves = body('if (bad) {', COMMIT, 'return;', '}', STOP);
  const stays = body('if (bad) {', COMMIT, '}', STOP);
  const good = body(COMMIT, FAULT, STOP);
  expect(await check({ 'a.ts': leaves, 'b.ts': good })).toBe('');
  expect(await check({ 'a.ts': stays })).toContain('a.ts:7: end acts here');
});

test('a directory in which nothing is seen does not pass', async () => {
  expect(await check({ 'a.ts': body(STOP) })).toContain('the check sees nothing');
});
