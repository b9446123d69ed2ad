/** The Linear agent with real Pi where there is no systemd. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LinearScene } from '../support/linear-scene.ts';
import { script } from '../support/rig.ts';

let scene: LinearScene;
beforeEach(async () => {
  scene = await LinearScene.create({ withoutSystemd: true });
});
afterEach(async () => {
  await scene.end();
});

const asked = (...lines: string[]): string => `please\n${script(...lines)}\n#end\n`;

describe('a session', () => {
  it('AC1: is answered', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked('bash echo hello', 'say The lamp turns.'));
    expect(await scene.concluded(session)).toEqual(['response: The lamp turns.']);
    expect(scene.linear.violations()).toEqual([]);
    expect(scene.linear.world.status(session)).toBe('complete');
    console.log(scene.words(session).map(({ content, ephemeral }) => [ephemeral, content]));
  });
});
