import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { DAEMON_NODE_FLAGS } from '../../src/layout.ts';

it('the daemon gets the same flags of Node, however it is started', () => {
  const script = fileURLToPath(new URL('../../ops/scripts/outlived', import.meta.url));
  const start = readFileSync(path.resolve(script), 'utf8')
    .split('\n')
    .find((line) => line.startsWith('exec '));
  expect(start).toBe(`exec "$node" ${DAEMON_NODE_FLAGS.join(' ')} "$entry" "$@"`);
});
