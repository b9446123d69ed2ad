/** Events for `events` and `logs`: what is stored, or that and what is to come. */
import type { EventView } from '../api/schemas.ts';
import type { Context } from './context.ts';

/** With `follow`, says on stderr when the daemon goes away and comes back. */
export async function* eventSource(
  { client, stderr }: Context,
  handle: string,
  { afterSeq, follow }: { afterSeq: number; follow: boolean | undefined },
): AsyncGenerator<EventView, void> {
  if (!follow) return yield* client.allEvents(handle, afterSeq);
  // A plain call first: no daemon or no such handle is an answer at once, not after a minute.
  const { id } = await client.getWorkUnit(handle);
  const onConnection = (state: 'connected' | 'away'): void => {
    void stderr.line(state === 'away' ? 'daemon away; waiting' : 'daemon back');
  };
  yield* client.followEvents(id, { afterSeq, onConnection });
}
