import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { isAlive, makeShellLab } from './support/lab.ts';

/** A cgroup of its own, as a unit has one; null where none can be made. */
function makeCgroup(): string | null {
  for (const root of ['/sys/fs/cgroup/unified', '/sys/fs/cgroup']) {
    const directory = path.join(root, `outlive-attempt-test-${process.pid}`);
    try {
      readFileSync(path.join(root, 'cgroup.procs'));
      mkdirSync(directory);
      onTestFinished(() => rmdirSync(directory));
      return directory;
    } catch {
      // Not a v2 mount, or not ours to write.
    }
  }
  return null;
}

test('what is still alive in the unit is named in the last word', async (context) => {
  const cgroup = makeCgroup();
  if (cgroup === null) return context.skip('making a cgroup needs root and cgroup v2');
  const lab = await makeShellLab(
    // Its name is sleep's only once setsid has become it.
    'setsid sleep 300 > /dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; echo $!',
  );
  const enter = ['/bin/sh', '-c', `echo $$ > ${cgroup}/cgroup.procs; exec "$@"`, 'enter'];
  const wrapper = lab.start({ INVOCATION_ID: 'feedbeef' }, enter);
  expect((await wrapper.ended).code).toBe(0);
  const word = wrapper.spool.lines.at(-1)?.data;
  const pid = Number(word?.['text']);
  expect(word?.['leftovers']).toEqual([{ pid, name: 'sleep' }]);
  writeFileSync(path.join(cgroup, 'cgroup.kill'), '1');
  await expect.poll(() => isAlive(pid)).toBe(false);
});
