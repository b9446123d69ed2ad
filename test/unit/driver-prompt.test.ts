/** Files of prompts that are none, and what must never hold the daemon up. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { DriverSpec } from '../../src/domain/driver.ts';
import { promptText } from '../../src/drivers/prompt.ts';

function place(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-prompt-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  return path.join(directory, 'prompt');
}
const read = (promptFile: string) => promptText({ run: { promptFile } } as DriverSpec);

it('a prompt file is read', () => {
  const file = place();
  writeFileSync(file, 'Fix {{handle}}');
  expect(read(file)).toBe('Fix {{handle}}');
});

it.each([
  ['a FIFO', (file: string) => execFileSync('mkfifo', [file]), 'is no plain file'],
  ['a directory', (file: string) => mkdirSync(file), 'is no plain file'],
  [
    'without end',
    (file: string) => {
      writeFileSync(file, '');
      truncateSync(file, 2 ** 40);
    },
    'is larger than',
  ],
  ['empty', (file: string) => writeFileSync(file, ' \n'), 'is empty'],
  ['not there', () => undefined, 'does not exist'],
])('one that is %s is refused at once', (_, make, words) => {
  const file = place();
  make(file);
  expect(() => read(file)).toThrow(words);
});
