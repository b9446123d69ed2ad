/**
 * One round, inside the host: `inside.ts whole|settle REQUEST`. It speaks with the runner
 * outside by lines that begin with `@`: `@outside ACT` asks for what only root can do and is
 * answered by a line on stdin, `@result JSON` is the end.
 */
import { cpSync, existsSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { CLOCK_JUMP, clockEnvironment } from './faults/clock.ts';
import { smallDiskFor } from './faults/disk.ts';
import { POINT_PREFIX, pointEnvironment } from './faults/points.ts';
import { gatherHistory } from './history.ts';
import { violations } from './invariants/table.ts';
import { type Arming, Keeper } from './keeper.ts';
import { Ledger } from './ledger.ts';
import { mayhem } from './mayhem.ts';
import type { RoundRequest, RoundResult } from './protocol.ts';
import { Random } from './random.ts';
import type { Round } from './round.ts';
import { settle } from './settle.ts';
import { closeWorkshop, LIMITS, openWorkshop, SMALL_DISK, type Workshop } from './workshop.ts';

const say = (line: string): void => void process.stdout.write(`@${line}\n`);

function asker(): (act: string) => Promise<void> {
  const lines = createInterface({ input: process.stdin });
  lines.pause();
  return async (act) => {
    const answer = new Promise<void>((resolve) => lines.once('line', () => resolve()));
    lines.resume();
    say(`outside ${act}`);
    await answer;
    lines.pause();
  };
}

function armingOf({ plan }: RoundRequest, random: Random): Arming | null {
  const fault = plan.faults.find(({ name }) => name.startsWith(POINT_PREFIX));
  if (!fault) return null;
  return { point: fault.name.slice(POINT_PREFIX.length), count: random.pick([1, 1, 1, 2, 3]) };
}

const limits: Record<string, number> = Object.fromEntries(
  Object.entries(LIMITS.runner).map(([runner, limit]) => [`runner ${runner}`, limit]),
);

async function check(
  request: RoundRequest,
  workshop: Workshop,
  ledger: Ledger,
  keeper: Keeper,
): Promise<string[]> {
  const { work } = request.plan;
  const { restless } = await settle(workshop, ledger, keeper, work);
  const lastDaemon = await keeper.close();
  const history = await gatherHistory(workshop, {
    work,
    ledger: ledger.entries,
    limits,
    restless,
    lastDaemon,
  });
  return violations(history);
}

async function round(mode: string, request: RoundRequest): Promise<RoundResult> {
  const { plan, workspace, model } = request;
  const names = plan.faults.map(({ name }) => name);
  const small = smallDiskFor(names);
  const workshop = await openWorkshop(workspace, model, small);
  const ledger = new Ledger(path.join(workshop.base, 'ledger.jsonl'));
  const random = new Random(`${plan.seed}/inside`);
  const arming = mode === 'whole' ? armingOf(request, random) : null;
  const keeper = new Keeper(workshop, ledger, arming);
  if (arming) Object.assign(keeper.extra, pointEnvironment(arming.point));
  if (names.includes(CLOCK_JUMP)) Object.assign(keeper.extra, clockEnvironment(workshop));
  keeper.start();
  let found: string[];
  try {
    if (mode === 'whole') {
      const undo: Round['undo'] = [];
      const { work } = plan;
      const context: Round = { workshop, ledger, keeper, random, work, outside: asker(), undo };
      try {
        await mayhem(context, plan.faults);
      } finally {
        for (const step of undo.reverse()) await step();
      }
    }
    found = await check(request, workshop, ledger, keeper);
  } catch (error) {
    const why = error instanceof Error ? (error.stack ?? error.message) : String(error);
    found = [`the round could not be played: ${why}`];
  }
  await keeper.end('SIGKILL').catch(() => undefined);
  const smallDisk = path.join(SMALL_DISK, workspace);
  if (found.length > 0 && existsSync(smallDisk)) {
    cpSync(smallDisk, path.join(workshop.base, 'small'), { recursive: true });
  }
  await closeWorkshop(workshop, { keep: found.length > 0 });
  return {
    violations: found,
    struck: ledger.of('fault').map(({ name }) => name),
    missed: ledger.of('missed').map(({ name }) => name),
    points: ledger.of('point').map(({ name }) => name),
  };
}

const [mode = '', request = ''] = process.argv.slice(2);
const result = await round(mode, JSON.parse(request) as RoundRequest);
say(`result ${JSON.stringify(result)}`);
process.exit(0);
