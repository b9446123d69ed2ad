/** What the nest costs: a command that enters it, beside the same command without; and its opening. */
import { type Nest, openNest } from '../../src/attempt/nest.ts';
import { sandboxPlaces } from '../../src/daemon/sandbox-places.ts';
import { monotonicMs } from './clock.ts';
import { type Figure, figure, inTurn } from './figure.ts';
import { exited } from './process.ts';
import { inWorkshop, type Workshop } from './workshop.ts';

/** What an agent runs most: a shell with a line. */
const COMMAND = ['/bin/bash', '-c', 'true'];

export async function measureNest(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const nest = await open(workshop);
    try {
      const entered = await inTurn(
        rounds,
        () => life(workshop, [...nest.enter, ...COMMAND]),
        () => life(workshop, COMMAND),
      );
      const opened = await inTurn(
        Math.ceil(rounds / 3),
        () => opening(workshop),
        () => life(workshop, COMMAND),
      );
      const what = "bash -c 'true'";
      return [
        figure({
          name: 'nest.command',
          unit: 'ms',
          measures: 'spawn to exit of a command that enters the nest',
          ours: entered.ours,
          beside: { what, samples: entered.beside },
        }),
        figure({
          name: 'nest.open',
          unit: 'ms',
          measures: 'to open a nest with everything it covers, once per attempt',
          ours: opened.ours,
          beside: { what, samples: opened.beside },
        }),
      ];
    } finally {
      await nest.close();
    }
  });
}

const open = ({ rig }: Workshop): Promise<Nest> =>
  openNest(sandboxPlaces(rig.config).nest, { cwd: rig.tree, without: [] });

async function opening(workshop: Workshop): Promise<number> {
  const began = monotonicMs();
  const nest = await open(workshop);
  const took = monotonicMs() - began;
  await nest.close();
  return took;
}

async function life(workshop: Workshop, argv: string[]): Promise<number> {
  const { environment: env, rig } = workshop;
  const began = monotonicMs();
  await exited(workshop.start(argv, { cwd: rig.tree, env, stdin: 'ignore' }));
  return monotonicMs() - began;
}
