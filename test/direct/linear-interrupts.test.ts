/** What a turn keeps when it is interrupted, by a person or by a shutdown, and what comes after it. */
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asked, held } from '../support/conformance-linear.ts';
import { LinearScene } from '../support/linear-scene.ts';
import { appears, within } from '../support/rig.ts';

let scene: LinearScene;
beforeEach(async () => {
  scene = await LinearScene.create({ withoutSystemd: true });
});
afterEach(async () => {
  await scene.end();
});

const begun = (name: string): Promise<void> => appears(path.join(scene.rig.tree, `begun-${name}`));
const linesOf = (text: string, role: string): string[] =>
  text.split('\n').filter((line) => line.includes(`"role":"${role}"`));

it('an interrupt keeps conversation and files, and what the process held is gone; row 204', async () => {
  await scene.startDaemon();
  const server = "setsid flock lock sh -c ': > begun-server; exec sleep 1000' > /dev/null 2>&1 &";
  const session = await scene.begin(
    asked(`say Remember 4711. ;; bash echo kept > kept; ${server} ${held('a').slice(5)}`),
  );
  await begun('a');
  await begun('server');
  const look = 'bash cat kept; flock -n lock true && echo nothing holds the lock';
  await scene.prompt(session, asked(look, 'say Seen.'));
  expect(await scene.concluded(session)).toEqual(['response: Seen.']);
  const [conversation, ...others] = scene.conversations();
  expect(others).toEqual([]);
  const results = linesOf(conversation?.text ?? '', 'toolResult');
  expect(results.at(-1)).toMatch(/kept\\nnothing holds the lock/);
  expect(conversation?.text).toMatch(/Remember 4711.*Seen\./s);
});

describe('a shutdown', () => {
  it('takes webhooks until its end, and the next daemon works them off: a turn and a prompt after it, each told once; row 199, row 227, row 228', async () => {
    const daemon = await scene.startDaemon({
      env: { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '3000' },
    });
    const waits = /the shutdown waits for attempts/;
    const session = await scene.begin(asked(held('a'), 'say Never.'));
    await begun('a');
    daemon.kill('SIGTERM');
    await expect.poll(() => daemon.output(), { timeout: 20_000 }).toMatch(waits);
    await scene.prompt(session, asked('say Both.'));
    const other = await scene.begin(asked('say The other.'));
    expect(await within('the daemon to end', daemon.exited)).toBe(0);
    expect(scene.lastWords(session)).toEqual([]);

    await scene.startDaemon();
    expect(await scene.concluded(session)).toEqual(['response: Both.']);
    expect(await scene.concluded(other)).toEqual(['response: The other.']);
    const [conversation] = scene.conversations().filter(({ text }) => text.includes('Both.'));
    const told = linesOf(conversation?.text ?? '', 'user');
    // Whether the prompt or the end of the grace interrupted the turn, nothing is said twice.
    expect(told).toHaveLength(2);
    expect(told[0]).toContain('say Never');
    expect(told[1]).toContain('say Both');
    expect(scene.words(session).map(({ content }) => content.type)).not.toContain('error');
    expect(scene.linear.violations()).toEqual([]);
    expect(scene.rig.model.violations()).toEqual([]);
  });
});
