import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { WRITTEN_SPOOL_VERSION } from '../../src/attempt/spool-writer.ts';
import { SPOOL_VERSION } from '../../src/domain/spool.ts';
import { makeShellLab } from './support/lab.ts';
import { readSpool } from './support/spool.ts';

test('the wrapper writes the version that the daemon reads', () => {
  expect(WRITTEN_SPOOL_VERSION).toBe(SPOOL_VERSION);
});

const CHATTER =
  'i=0; while :; do i=$((i+1)); echo "line $i ################################"; done';

test.each([1, 2, 3, 5, 8, 13, 21, 34])(
  'SIGKILL after %i lines: only the very last line may be torn',
  async (count) => {
    const lab = await makeShellLab(CHATTER);
    const wrapper = lab.start();
    await wrapper.line(`line ${count + 2}`, (line) => line.n === count + 2);
    wrapper.kill('SIGKILL');
    expect((await wrapper.ended).signal).toBe('SIGKILL');
    // Reading checks order, gaps, length and shape of every whole line.
    const { lines } = readSpool(lab.spoolFile);
    expect(lines.length).toBeGreaterThan(count);
    const said = lines
      .filter((line) => line.type === 'stdout_delta')
      .map((line) => line.data['text']);
    const numbers = [...said.join('').matchAll(/line (\d+) #+\n/g)].map((match) =>
      Number(match[1]),
    );
    expect(numbers).toEqual(numbers.map((_, index) => index + 1));
  },
);

/** A tmpfs of that size, or why there is none. */
function smallDisk(size: string): string | null {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-full-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', directory]);
  onTestFinished(() => {
    if (mounted.status === 0) spawnSync('umount', [directory]);
    rmSync(directory, { recursive: true });
  });
  return mounted.status === 0 ? directory : null;
}

test('a full disk: the command is stopped, the last word says disk_full, no line is torn', async (context) => {
  const disk = smallDisk('1m');
  if (disk === null) return context.skip('mounting a tmpfs needs root');
  const lab = await makeShellLab(CHATTER, {}, disk);
  const { code, lines, word, stderr } = await lab.run();
  expect(code).toBe(1);
  expect(word).toMatchObject({ verdict: 'error', code: 'disk_full', signal: 'SIGTERM' });
  expect(word.message).toContain('ENOSPC');
  expect(stderr).toContain('The spool could not be written: ENOSPC');
  expect(readSpool(lab.spoolFile).torn).toBe('');
  expect(lines.length).toBeGreaterThan(10);
});

test('a full disk without any room for a last word: status 193 and whole lines only', async (context) => {
  const disk = smallDisk('1m');
  if (disk === null) return context.skip('mounting a tmpfs needs root');
  // It takes the reserve away, and all that is free.
  const lab = await makeShellLab(
    `trap '' TERM; rm ../attempt/events.jsonl.reserve; head -c 2000000 /dev/zero > fill; ${CHATTER}`,
    { timeouts: { cancelGraceMs: 100 } },
    disk,
  );
  const end = await lab.start().ended;
  expect(end.code).toBe(193);
  const { lines, torn } = readSpool(lab.spoolFile);
  expect(torn).toBe('');
  expect(lines.at(-1)?.type).not.toBe('runner.finished');
});
