/** The key of a provider stays with the wrapper; real Pi, real HTTP. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { makePiLab, withCredentials } from './support/pi-lab.ts';

const KEY = 'Planted-Key-0123456789abcdef';
const TOKEN = /outlive-[\w-]{43}/;
const proxied = { key: KEY };

/** Files below a directory that hold the key or a token, each with which. */
function foundBelow(root: string): string[] {
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .flatMap((file) => {
      const text = readFileSync(file, 'latin1');
      const name = path.relative(root, file);
      return [
        ...(text.includes(KEY) ? [`the key in ${name}`] : []),
        ...(TOKEN.test(text) ? [`a token in ${name}`] : []),
      ];
    });
}

test('the key reaches the provider, and neither Pi, its commands nor any file has key or token', async () => {
  const { lab, model } = await makePiLab({
    serverKey: KEY,
    proxied,
    script: [
      'bash env > ../env; cat /proc/$PPID/environ /proc/$PPID/cmdline > ../pi; echo up; until [ -e ../go ]; do sleep 0.05; done',
      'say Done.',
    ],
  });
  const wrapper = lab.start(withCredentials(lab));
  await wrapper.line('the command', (line) => line.type === 'tool.update');
  expect(foundBelow(lab.root), 'while it runs').toEqual([]);
  writeFileSync(path.join(lab.root, 'go'), '');
  expect(await wrapper.ended).toEqual({ code: 0, signal: null, stderr: '' });
  expect(wrapper.spool.lines.at(-1)?.data).toMatchObject({ verdict: 'ok', text: 'Done.' });
  expect(model.violations(), 'the model demands the key').toEqual([]);
  expect(model.requests()).toHaveLength(2);
  expect(foundBelow(lab.root), 'afterwards').toEqual([]);
  const pi = await lab.readText('pi');
  expect(pi, 'it is Pi that was looked at').toContain(`HOME=${lab.root}`);
});
