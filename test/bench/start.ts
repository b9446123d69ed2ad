/**
 * From a request to its process, beside `systemd-run --user` for the same command.
 *
 * "Main process" is ExecMainStartTimestampMonotonic of the unit: the moment systemd had
 * forked it. "Command" is the time that the command itself notes as its first act. Ours
 * begins before the POST is sent to a running daemon, theirs before systemd-run is
 * spawned. Both run in the same slice, which is empty in between. The command then
 * sleeps until it is ended, because nothing can be asked about a unit that has gone.
 */
import { execFile } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { sliceName, unitName } from '../../src/domain/names.ts';
import { appears, systemctl } from '../support/rig.ts';
import { monotonicMs, wallToMonotonic } from './clock.ts';
import { type Figure, figure, inTurn } from './figure.ts';
import { inWorkshop, spoolLine, type Workshop } from './workshop.ts';

const run = promisify(execFile);

/** Milliseconds after the request. */
interface Start {
  readonly mainProcess: number;
  readonly command: number;
}

interface OurStart extends Start {
  readonly answered: number;
  /** The wrapper's first spool line: it has loaded its code and made its claim durable. */
  readonly opened: number;
}

export async function measureStart(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    await workshop.rig.startDaemon();
    const command = new StampedCommand(workshop);
    const seen = await inTurn(
      rounds,
      () => startOurs(workshop, command),
      () => startTheirs(workshop, command),
    );
    return figures(seen.ours, seen.beside);
  });
}

function figures(ours: readonly OurStart[], theirs: readonly Start[]): Figure[] {
  const what = 'systemd-run --user';
  const pair = (name: 'mainProcess' | 'command') => ({
    unit: 'ms',
    ours: ours.map((start) => start[name]),
    beside: { what, samples: theirs.map((start) => start[name]) },
  });
  const part = (name: string, measures: string, of: (start: OurStart) => number): Figure =>
    figure({ name: `start.part.${name}`, unit: 'ms', measures, ours: ours.map(of) });
  return [
    figure({
      name: 'start.main_process',
      measures: "request to the unit's main process forked by systemd",
      ...pair('mainProcess'),
    }),
    figure({
      name: 'start.command',
      measures: 'request to the first act of the command itself (ours: through the wrapper)',
      ...pair('command'),
    }),
    part('answer', 'POST to its answer: the work unit is durable', (start) => start.answered),
    part(
      'fork',
      'answer to the main process: claim, launch.json, StartTransientUnit',
      (start) => start.mainProcess - start.answered,
    ),
    part(
      'open',
      "main process to the wrapper's first spool line: Node, our code, the claim",
      (start) => start.opened - start.mainProcess,
    ),
    part(
      'command',
      'first spool line to the first act of the command',
      (start) => start.command - start.opened,
    ),
  ];
}

/** A shell script that notes when it began, then waits to be ended. */
class StampedCommand {
  readonly argv: readonly string[];
  readonly #stamp: string;

  constructor({ rig }: Workshop) {
    const script = path.join(rig.base, 'command.sh');
    this.#stamp = path.join(rig.base, 'stamp', 'began');
    // Renamed, so that whoever sees it sees all of it.
    const lines = [`date +%s%N >${this.#stamp}.new`, `mv ${this.#stamp}.new ${this.#stamp}`];
    writeFileSync(script, `${[...lines, 'exec sleep 600'].join('\n')}\n`);
    this.argv = ['/bin/sh', script];
  }

  /** Waits until it runs; the wall time of its begin, ms. */
  async began(): Promise<number> {
    await appears(this.#stamp);
    const nanoseconds = readFileSync(this.#stamp, 'utf8');
    rmSync(this.#stamp);
    return Number(nanoseconds) / 1e6;
  }
}

async function startOurs({ rig }: Workshop, command: StampedCommand): Promise<OurStart> {
  const toMonotonic = wallToMonotonic();
  const sent = monotonicMs();
  const { id, handle } = await rig.submit({ argv: [...command.argv] });
  const answered = monotonicMs() - sent;
  const began = toMonotonic(await command.began()) - sent;
  const unit = unitName({ workspace: rig.workspace, handle, counter: 1 });
  const mainProcess = (await forkedAt(unit)) - sent;
  const attempt = (await rig.client.getWorkUnit(id)).attempts[0];
  const directory = path.join(rig.config.directories.attempts, id, attempt?.id ?? '');
  const openedLine = await spoolLine(directory, 'attempt.opened');
  const opened = toMonotonic(Date.parse(openedLine.ts)) - sent;
  await rig.client.cancelWorkUnit(id);
  await rig.outcome(id);
  return { answered, mainProcess, opened, command: began };
}

async function startTheirs(workshop: Workshop, command: StampedCommand): Promise<Start> {
  const { workspace } = workshop.rig;
  const unit = `${workshop.name()}-${workspace}.service`;
  const options = ['--user', '--quiet', `--unit=${unit}`, `--slice=${sliceName(workspace)}`];
  const toMonotonic = wallToMonotonic();
  const sent = monotonicMs();
  await run('systemd-run', [...options, ...command.argv]);
  const began = toMonotonic(await command.began()) - sent;
  const mainProcess = (await forkedAt(unit)) - sent;
  await systemctl('stop', unit);
  return { mainProcess, command: began };
}

async function forkedAt(unit: string): Promise<number> {
  const property = 'ExecMainStartTimestampMonotonic';
  const microseconds = Number(await systemctl('show', `--property=${property}`, '--value', unit));
  if (!(microseconds > 0)) throw new Error(`systemd knows no ${property} of ${unit}`);
  return microseconds / 1000;
}
