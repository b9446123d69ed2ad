import { defineConfig } from 'vitest/config';

/** One project per tier; `ops/scripts/check` runs each and adds up what they counted. */
const tier = (name: string, options: Record<string, unknown> = {}) => ({
  test: {
    name,
    include: [`test/${name}/**/*.test.ts`],
    setupFiles: ['test/support/seed.ts'],
    testTimeout: 20_000,
    hookTimeout: 60_000,
    ...options,
  },
});

// Tiers that boot hosts or start units run one file at a time: the manager is the
// limit there, and a file that fails must not be able to blame its neighbour.
const alone = { testTimeout: 120_000, hookTimeout: 180_000, fileParallelism: false };

/** A tier with a real daemon on one executor; what has to hold on both is in test/executors. */
const onExecutor = (name: 'direct' | 'systemd') =>
  tier(name, {
    ...alone,
    include: [`test/${name}/**/*.test.ts`, 'test/executors/**/*.test.ts'],
    env: { OUTLIVE_TEST_EXECUTOR: name },
  });

export default defineConfig({
  test: {
    projects: [
      tier('unit'),
      tier('property', { testTimeout: 60_000 }),
      tier('store'),
      tier('attempt', { testTimeout: 60_000 }),
      tier('pi', { testTimeout: 60_000 }),
      tier('api', { testTimeout: 60_000 }),
      tier('cli', { testTimeout: 60_000 }),
      // Real processes and their deadlines: one file at a time.
      onExecutor('direct'),
      tier('host', alone),
      onExecutor('systemd'),
    ],
  },
});
