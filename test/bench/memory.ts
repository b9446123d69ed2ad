/** What the wrapper costs in memory: its private pages, once it is idle. */
import { type Figure, figure } from './figure.ts';
import { exited, privateMiB } from './process.ts';
import { inWorkshop, settle, spoolLine, type Workshop } from './workshop.ts';

export async function measureMemory(rounds: number): Promise<Figure[]> {
  return inWorkshop(async (workshop) => {
    const idle: { wrapper: number; node: number }[] = [];
    const withPi: { wrapper: number; pi: number }[] = [];
    // A tenth: memory hardly varies.
    for (let round = 0; round < Math.ceil(rounds / 10); round += 1) {
      idle.push(await idleWrapper(workshop));
      withPi.push(await wrapperOfPi(workshop));
    }
    return [
      figure({
        name: 'memory.wrapper',
        unit: 'MiB',
        measures: 'private memory of the wrapper while its command sleeps',
        ours: idle.map(({ wrapper }) => wrapper),
        beside: { what: 'node, idle', samples: idle.map(({ node }) => node) },
      }),
      figure({
        name: 'memory.wrapper_of_pi',
        unit: 'MiB',
        measures: 'private memory of the wrapper while its Pi waits for the model',
        ours: withPi.map(({ wrapper }) => wrapper),
        beside: { what: 'the Pi in it', samples: withPi.map(({ pi }) => pi) },
      }),
    ];
  });
}

/** Both at the same time: what they share with other Nodes is then the same. */
async function idleWrapper(workshop: Workshop): Promise<{ wrapper: number; node: number }> {
  const attempt = await workshop.attempt({ kind: 'command', argv: ['/bin/sleep', '600'] });
  const { environment: env, rig } = workshop;
  const argv = [process.execPath, '-e', 'setTimeout(() => {}, 1e6)'];
  const wrapper = workshop.wrapper(attempt);
  const node = workshop.start(argv, { cwd: rig.tree, env, stdin: 'ignore' });
  await settle();
  await spoolLine(attempt.directory, 'started');
  const seen = { wrapper: privateMiB(wrapper.pid ?? 0), node: privateMiB(node.pid ?? 0) };
  const ended = [exited(wrapper, 'SIGTERM'), exited(node, 'SIGTERM')];
  wrapper.kill('SIGTERM');
  node.kill('SIGTERM');
  await Promise.all(ended);
  return seen;
}

async function wrapperOfPi(workshop: Workshop): Promise<{ wrapper: number; pi: number }> {
  const marker = workshop.name();
  const attempt = await workshop.attempt(workshop.pi(marker, 'hang'));
  const wrapper = workshop.wrapper(attempt);
  const ended = exited(wrapper, 'SIGTERM');
  await workshop.requested(marker, ended);
  await settle();
  const started = await spoolLine(attempt.directory, 'started');
  const seen = {
    wrapper: privateMiB(wrapper.pid ?? 0),
    pi: privateMiB(Number(started.data['pid'])),
  };
  wrapper.kill('SIGTERM');
  await ended;
  return seen;
}
