/** `npm run chaos`: deals rounds from a seed and plays them in a private host of its own. */
import { randomInt } from 'node:crypto';
import { existsSync, mkdtempSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ROOT } from '../support/rig.ts';
import { startScriptedModel } from '../support/scripted-model/server.ts';
import { POINTS } from './faults/points.ts';
import { FAULTS, faultNamed } from './faults/table.ts';
import { Host, HostFailure, NOT_POSSIBLE, orphanedHosts } from './host.ts';
import { type Options, parseOptions, repeatCommand, USAGE } from './options.ts';
import { dealRounds, type RoundPlan } from './plan.ts';
import { playRound } from './play.ts';
import { addRound, hasFailed, newTally, summary, type Tally } from './tally.ts';

const API_KEY = 'chaos-key';

/** The rounds that were asked for, in order. */
function* rounds(options: Options): Generator<RoundPlan> {
  const end = options.minutes === null ? null : Date.now() + options.minutes * 60_000;
  for (const dealt of dealRounds(options.seed, FAULTS)) {
    const plan: RoundPlan =
      options.faults.length === 0
        ? dealt
        : {
            ...dealt,
            faults: options.faults.map((name, index) => ({
              name,
              when: dealt.faults[index]?.when ?? { seen: 'begun', count: 1, delayMs: index * 100 },
            })),
          };
    if (options.only !== null) {
      if (plan.round === options.only) yield plan;
      if (plan.round >= options.only) return;
    } else if (end === null ? plan.round <= options.rounds : Date.now() < end) yield plan;
    else return;
  }
}

async function playAll(
  options: Options,
  host: Host,
  logs: string,
  stop: AbortSignal,
): Promise<Tally> {
  const tally = newTally();
  const model = await startScriptedModel({ apiKey: API_KEY });
  try {
    for (const plan of rounds(options)) {
      if (stop.aborted) break;
      const began = Date.now();
      const names = plan.faults.map(({ name }) => name).join(' + ');
      const workspace = `c${plan.round}`;
      const place = path.join(logs, `round-${plan.round}`);
      const request = { plan, workspace, model: { baseUrl: model.baseUrl, apiKey: API_KEY } };
      const result = await playRound(host, request, place);
      if (stop.aborted) break; // Its host was taken from under it.
      addRound(tally, result);
      const took = `${((Date.now() - began) / 1000).toFixed(1)} s`;
      if (result.violations.length === 0) {
        console.log(`round ${plan.round} ok, ${took}: ${names}`);
        continue;
      }
      console.log(`round ${plan.round} FAILED, ${took}, seed ${plan.seed}: ${names}`);
      for (const violation of result.violations) console.log(`  ${violation}`);
      console.log(`  again: ${repeatCommand(options, plan.round)}\n  files: ${place}`);
    }
  } finally {
    await model.close();
  }
  return tally;
}

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2), () => String(randomInt(1, 1_000_000_000)));
  if (options.list) {
    console.log(FAULTS.map(({ name }) => name).join('\n'));
    return 0;
  }
  for (const name of options.faults) faultNamed(name);
  if (!existsSync(path.join(ROOT, 'dist/main.js')))
    throw new Error('dist/ is missing: npm run build');
  const logs = process.env['OUTLIVE_CHAOS_LOGS'] ?? mkdtempSync(path.join(os.tmpdir(), 'chaos-'));
  console.log(`seed ${options.seed}`);
  for (const orphan of orphanedHosts()) await orphan.down();
  const host = Host.own();
  const stop = new AbortController();
  const end = (signal: NodeJS.Signals): void => {
    stop.abort();
    void host.down().finally(() => process.exit(signal === 'SIGINT' ? 130 : 143));
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
  let tally: Tally;
  try {
    await host.up();
    tally = await playAll(options, host, logs, stop.signal);
  } finally {
    await host.down();
  }
  const isFull =
    options.only === null &&
    options.minutes === null &&
    options.faults.length === 0 &&
    options.rounds >= FAULTS.length;
  const names = { faults: FAULTS.map(({ name }) => name), points: POINTS };
  const lines = summary(tally, names, isFull);
  console.log(`\n${lines.join('\n')}`);
  return hasFailed(lines) ? 1 : 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (error instanceof HostFailure && error.status === NOT_POSSIBLE)
    process.exitCode = NOT_POSSIBLE;
  else {
    console.error(`chaos: ${(error as Error).message}\n${USAGE}`);
    process.exitCode = 2;
  }
}
