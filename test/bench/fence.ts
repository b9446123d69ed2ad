/** What the fence costs a call: a record before and after it, each with the disk. */
import { piArguments } from '../../src/attempt/pi-runner.ts';
import { type Figure, figure, inTurn } from './figure.ts';
import { exited } from './process.ts';
import { inWorkshop, type Workshop } from './workshop.ts';

const CALLS = 20;
const TURNS = [...Array.from({ length: CALLS }, () => 'bash true'), 'say done'].join('\n');

export async function measureFence(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const seen = await inTurn(
      // A third: each is a whole run of Pi.
      Math.ceil(rounds / 3),
      () => fenced(workshop),
      () => bare(workshop),
    );
    return [
      figure({
        name: 'fence.call',
        unit: 'ms',
        measures: `a turn with one call of bash, from request to request at the model, mean of ${CALLS}`,
        ours: seen.ours,
        beside: { what: 'pi --mode rpc', samples: seen.beside },
      }),
    ];
  });
}

async function fenced(workshop: Workshop): Promise<number> {
  const marker = workshop.name();
  const attempt = await workshop.attempt(workshop.pi(marker, TURNS));
  await exited(workshop.wrapper(attempt));
  return perCall(workshop, marker);
}

async function bare(workshop: Workshop): Promise<number> {
  const marker = workshop.name();
  const spec = workshop.pi(marker, TURNS);
  const { environment: env, rig } = workshop;
  const pi = workshop.start(piArguments(spec), { cwd: rig.tree, env, stdin: 'pipe' });
  const ended = exited(pi);
  pi.stdin?.write(`${JSON.stringify({ type: 'prompt', message: spec.prompt })}\n`);
  const isLast = (): boolean => requestsOf(workshop, marker).length > CALLS;
  const last = rig.model.waitFor(
    ({ lastUserText }) => lastUserText.startsWith(`${marker}:`) && isLast(),
  );
  await Promise.race([last, ended]);
  pi.stdin?.end();
  await ended;
  return perCall(workshop, marker);
}

/** Wall times of its requests, ms. */
function requestsOf({ rig }: Workshop, marker: string): readonly number[] {
  return rig.model
    .requests()
    .filter(({ lastUserText }) => lastUserText.startsWith(`${marker}:`))
    .map(({ time }) => Date.parse(time));
}

function perCall(workshop: Workshop, marker: string): number {
  const times = requestsOf(workshop, marker);
  const [first, last] = [times[0], times.at(-1)];
  if (times.length !== CALLS + 1 || first === undefined || last === undefined) {
    throw new Error(`${times.length} requests for ${CALLS} calls`);
  }
  return (last - first) / CALLS;
}
