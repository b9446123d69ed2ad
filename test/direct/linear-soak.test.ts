/** A small run of the soak of the Linear agent; `npm run soak:linear` makes larger ones. */
import { mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { soak } from '../soak/linear/run.ts';

const RUN = { sessions: 25, seed: '1', parallel: 8 };

it('every word is answered once, whatever is late, twice, lost, refused or killed', async () => {
  const logs = process.env['OUTLIVE_SOAK_LOGS'] ?? mkdtempSync(path.join(os.tmpdir(), 'soak-'));
  const { violations, histories, figures } = await soak(RUN, logs);
  const told = violations.map(({ session, what }) => `${session ?? 'the run'}: ${what}`);
  expect(told, [`files: ${logs}`, ...histories].join('\n')).toEqual([]);
  expect(figures['sessions']).toBe(RUN.sessions);
}, 360_000);
