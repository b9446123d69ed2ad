/** Where work trees lie: never where a nest would hide them. */
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { linearPlaces } from '../../src/daemon/linear-places.ts';
import { sandboxPlaces } from '../../src/daemon/sandbox-places.ts';

const isWithin = (outer: string, inner: string): boolean =>
  !path.relative(outer, inner).startsWith('..');

describe('the places of the Linear agent', () => {
  it.each([
    {},
    { XDG_STATE_HOME: '/var/lib/me' },
    { STATE_DIRECTORY: '/var/lib/private/agent' },
    { OUTLIVE_WORKSPACE: 'other' },
  ])('are seen in a nest, and what is known of them is not: %j', (env) => {
    const config = loadConfig({ HOME: '/home/me', XDG_RUNTIME_DIR: '/run/user/7', ...env });
    const { hidden } = sandboxPlaces(config).nest;
    const { trees, records, locks } = linearPlaces(config);
    const isHidden = (file: string): boolean => hidden.some((each) => isWithin(each, file));
    expect([trees, records, locks].map(isHidden)).toEqual([false, true, true]);
    expect(trees).toContain(config.workspace === 'other' ? 'other' : '');
  });
});
