/** Events for `events` and `logs`: what is stored, or that and what is to come. */
import type { EventView } from '../api/schemas.ts';
import { floorOf } from '../client/problem.ts';
import type { Context } from './context.ts';

/** With `follow`, says on stderr when the daemon goes away and comes back. */
export async function* eventSource(
  { client, stderr }: Context,
  handle: string,
  { afterSeq, follow }: { afterSeq: number; follow: boolean | undefined },
): AsyncGenerator<EventView, void> {
  if (!follow) {
    return yield* fromFloor(stderr, afterSeq, (after) => client.allEvents(handle, after));
  }
  // A plain call first: no daemon or no such handle is an answer at once, not after a minute.
  const { id } = await client.getWorkUnit(handle);
  const onConnection = (state: 'connected' | 'away'): void => {
    void stderr.line(state === 'away' ? 'daemon away; waiting' : 'daemon back');
  };
  yield* fromFloor(stderr, afterSeq, (after) =>
    client.followEvents(id, { afterSeq: after, onConnection }),
  );
}

/** Whoever asked for all of it gets what retention left, and is told so. */
async function* fromFloor(
  stderr: Context['stderr'],
  afterSeq: number,
  source: (afterSeq: number) => AsyncGenerator<EventView, void>,
): AsyncGenerator<EventView, void> {
  let any = false;
  try {
    for await (const event of source(afterSeq)) {
      any = true;
      yield event;
    }
  } catch (error) {
    const floor = floorOf(error);
    if (any || afterSeq > 0 || floor === null) throw error;
    await stderr.line(`Its events up to ${floor} were removed by retention.`);
    yield* source(floor);
  }
}
