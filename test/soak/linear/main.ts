/** `npm run soak:linear`: a run of the Linear agent, in the direct executor: no systemd, no root. */
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ROOT } from '../../support/rig.ts';
import { parseOptions, USAGE } from './options.ts';
import { soak } from './run.ts';

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2), () => String(randomInt(1, 1_000_000_000)));
  if (!existsSync(path.join(ROOT, 'dist/main.js')))
    throw new Error('dist/ is missing: npm run build');
  const logs = process.env['OUTLIVE_SOAK_LOGS'] ?? mkdtempSync(path.join(os.tmpdir(), 'soak-'));
  const { seed, sessions, parallel } = options;
  console.log(`seed ${seed}, ${sessions} sessions, ${parallel} issues at once`);
  const began = Date.now();
  const { violations, histories, figures } = await soak(options, logs);
  for (const [name, value] of Object.entries(figures)) console.log(`${name}: ${value}`);
  for (const history of histories) console.log(`\n${history}`);
  for (const { session, what } of violations) console.log(`${session ?? 'the run'}: ${what}`);
  const took = `${((Date.now() - began) / 1_000).toFixed(1)} s`;
  if (violations.length === 0) {
    console.log(`ok, ${took}`);
    return 0;
  }
  const again = `npm run soak:linear -- --seed ${seed} --sessions ${sessions} --parallel ${parallel}`;
  console.log(`FAILED, ${took}: ${violations.length}\nagain: ${again}\nfiles: ${logs}`);
  return 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`soak: ${(error as Error).stack}\n${USAGE}`);
  process.exitCode = 2;
}
