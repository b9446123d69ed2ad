/** What the wrapper costs in time: as plain processes, without daemon and systemd. */
import { piArguments } from '../../src/attempt/pi-runner.ts';
import { monotonicMs, wallToMonotonic } from './clock.ts';
import { type Figure, figure, inTurn } from './figure.ts';
import { exited } from './process.ts';
import { inWorkshop, spoolLine, type Workshop } from './workshop.ts';

export async function measureWrapper(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const seen = await inTurn(
      rounds,
      () => wrapperLife(workshop),
      () => nodeLife(workshop),
    );
    return [
      figure({
        name: 'wrapper.life',
        unit: 'ms',
        measures: 'spawn to exit of the wrapper around /bin/true',
        ours: seen.ours.map(({ life }) => life),
        beside: { what: 'node -e 0', samples: seen.beside },
      }),
      figure({
        name: 'wrapper.part.open',
        unit: 'ms',
        measures: 'spawn to its first spool line: Node, our code, the claim',
        ours: seen.ours.map(({ opened }) => opened),
      }),
    ];
  });
}

async function wrapperLife(workshop: Workshop): Promise<{ life: number; opened: number }> {
  const attempt = await workshop.attempt({ kind: 'command', argv: ['/bin/true'] });
  const toMonotonic = wallToMonotonic();
  const began = monotonicMs();
  await exited(workshop.wrapper(attempt));
  const life = monotonicMs() - began;
  const { ts } = await spoolLine(attempt.directory, 'attempt.opened');
  return { life, opened: toMonotonic(Date.parse(ts)) - began };
}

async function nodeLife(workshop: Workshop): Promise<number> {
  const { environment: env, rig } = workshop;
  const began = monotonicMs();
  const argv = [process.execPath, '-e', '0'];
  await exited(workshop.start(argv, { cwd: rig.tree, env, stdin: 'ignore' }));
  return monotonicMs() - began;
}

/**
 * To the model's first request. The bare Pi has its prompt waiting on stdin when it
 * starts: the least that anyone who drives it can do.
 */
export async function measurePi(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const seen = await inTurn(
      // A third: each is a whole start of Pi.
      Math.ceil(rounds / 3),
      () => wrappedPi(workshop),
      () => barePi(workshop),
    );
    const part = (name: string, measures: string, of: (run: WrappedPi) => number): Figure =>
      figure({ name: `pi.part.${name}`, unit: 'ms', measures, ours: seen.ours.map(of) });
    return [
      figure({
        name: 'pi.first_request',
        unit: 'ms',
        measures: "spawn to Pi's first request at the model (ours: through the wrapper)",
        ours: seen.ours.map(({ request }) => request),
        beside: { what: 'pi --mode rpc', samples: seen.beside },
      }),
      part(
        'open',
        "spawn to the wrapper's first spool line: Node, our code, the claim",
        ({ opened }) => opened,
      ),
      part(
        'ready',
        'first spool line to Pi having answered what it is',
        ({ opened, started }) => started - opened,
      ),
      part(
        'ask',
        'Pi having answered to its request at the model',
        ({ started, request }) => request - started,
      ),
    ];
  });
}

/** Milliseconds after the spawn. */
interface WrappedPi {
  readonly opened: number;
  /** The spool line `started`: Pi is there and has answered two questions. */
  readonly started: number;
  readonly request: number;
}

async function wrappedPi(workshop: Workshop): Promise<WrappedPi> {
  const marker = workshop.name();
  const attempt = await workshop.attempt(workshop.pi(marker, 'say done'));
  const toMonotonic = wallToMonotonic();
  const began = monotonicMs();
  const ended = exited(workshop.wrapper(attempt));
  const request = toMonotonic(await workshop.requested(marker, ended)) - began;
  await ended;
  const after = async (type: 'attempt.opened' | 'started'): Promise<number> =>
    toMonotonic(Date.parse((await spoolLine(attempt.directory, type)).ts)) - began;
  return { opened: await after('attempt.opened'), started: await after('started'), request };
}

async function barePi(workshop: Workshop): Promise<number> {
  const marker = workshop.name();
  const spec = workshop.pi(marker, 'say done');
  const { environment: env, rig } = workshop;
  const toMonotonic = wallToMonotonic();
  const began = monotonicMs();
  const pi = workshop.start(piArguments(spec), { cwd: rig.tree, env, stdin: 'pipe' });
  pi.stdin?.write(`${JSON.stringify({ type: 'prompt', message: spec.prompt })}\n`);
  const ended = exited(pi);
  const request = toMonotonic(await workshop.requested(marker, ended)) - began;
  pi.stdin?.end();
  await ended;
  return request;
}
