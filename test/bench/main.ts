/**
 * The benchmark: `npm run bench -- [--json] [--rounds N] [--only GROUP]`.
 *
 * Machines are shared and noisy, so that no figure means much alone: what can be compared
 * is measured in turn with what it is compared with, and the ratio of the medians is the
 * result. Where a figure has a target the table says whether it holds. Fails when something
 * does not work, never because of a figure.
 */
import os from 'node:os';
import { parseArgs } from 'node:util';
import { measureDaemon } from './daemon.ts';
import { measureFence } from './fence.ts';
import { type Figure, table } from './figure.ts';
import { measureIngest } from './ingest.ts';
import { measureLinear } from './linear.ts';
import { measureMemory } from './memory.ts';
import { measureNest } from './nest.ts';
import { measureQueue } from './queue.ts';
import { measureRecovery, measureTree } from './recovery.ts';
import { measureStart } from './start.ts';
import { measureDelivery, measureFanOut } from './streams.ts';
import { endAll } from './workshop.ts';
import { measurePi, measureWrapper } from './wrapper.ts';

const GROUPS: Readonly<Record<string, (rounds: number) => Promise<Figure[]>>> = {
  start: measureStart,
  wrapper: measureWrapper,
  pi: measurePi,
  fence: measureFence,
  nest: measureNest,
  memory: measureMemory,
  daemon: measureDaemon,
  ingest: measureIngest,
  linear: measureLinear,
  queue: measureQueue,
  recovery: measureRecovery,
  tree: measureTree,
  delivery: measureDelivery,
  fanout: measureFanOut,
};

const USAGE = `usage: bench [--json] [--rounds N] [--only ${Object.keys(GROUPS).join('|')}]

Needs a systemd user manager (ops/scripts/bench finds or makes one) and dist/ (npm run build).
--rounds  pairs measured (30); Pi's starts take a third of them, memory a tenth
--only    one group of figures; may be given several times
`;

interface Options {
  readonly json: boolean;
  readonly rounds: number;
  readonly groups: readonly string[];
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      rounds: { type: 'string', default: '30' },
      only: { type: 'string', multiple: true },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    process.exit(0);
  }
  const rounds = Number(values.rounds);
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error(`--rounds ${values.rounds}`);
  const groups = values.only ?? Object.keys(GROUPS);
  for (const group of groups) if (!(group in GROUPS)) throw new Error(`--only ${group}`);
  return { json: values.json, rounds, groups };
}

function options(): Options {
  try {
    return readOptions();
  } catch (error) {
    process.stderr.write(`bench: ${(error as Error).message}\n${USAGE}`);
    process.exit(2);
  }
}

/** The largest of a group's parts, as a sentence. */
function dominant(figures: readonly Figure[], group: string, whole: string): string | null {
  const total = figures.find(({ name }) => name === whole)?.ours.p50;
  const parts = figures.filter(({ name }) => name.startsWith(`${group}.part.`));
  const largest = parts.toSorted((a, b) => b.ours.p50 - a.ours.p50)[0];
  if (total === undefined || largest === undefined) return null;
  const share = Math.round((100 * largest.ours.p50) / total);
  return `${whole}: ${share} % is ${largest.name} (${largest.measures})`;
}

async function main({ json, rounds, groups }: Options): Promise<void> {
  const load = os.loadavg()[0];
  const figures: Figure[] = [];
  for (const group of groups) {
    const began = performance.now();
    figures.push(...((await GROUPS[group]?.(rounds)) ?? []));
    const seconds = ((performance.now() - began) / 1000).toFixed(0);
    process.stderr.write(`bench: ${group} measured in ${seconds} s\n`);
  }
  const machine = { node: process.version, cpus: os.cpus().length, load };
  if (json) {
    process.stdout.write(`${JSON.stringify({ machine, figures })}\n`);
    return;
  }
  const said = `Node ${machine.node}, ${machine.cpus} CPUs, load ${load} before`;
  const notes = [
    dominant(figures, 'start', 'start.command'),
    dominant(figures, 'wrapper', 'wrapper.life'),
    dominant(figures, 'pi', 'pi.first_request'),
  ].filter((note) => note !== null);
  process.stdout.write(`${[said, '', table(figures), '', ...notes].join('\n')}\n`);
}

for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const) {
  process.once(signal, () => void endAll().finally(() => process.exit(code)));
}
await main(options());
