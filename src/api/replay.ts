/** Whether what follows a cursor can still be sent whole. */
import { OutliveError } from '../domain/errors.ts';
import type { ApiContext } from './context.ts';

/** The refusal of a cursor whose followers are not all kept, null when they are. */
export function unreplayable(
  context: ApiContext,
  workUnitId: string,
  afterSeq: number,
): OutliveError | null {
  const { floor, last } = context.store.events.span(workUnitId);
  if (afterSeq >= floor && afterSeq <= last) return null;
  const why =
    afterSeq < floor
      ? `Events up to ${floor} were removed by retention, asked was for what follows ${afterSeq}`
      : `The newest event is ${last}, asked was for what follows ${afterSeq}`;
  return new OutliveError(
    'control_plane_snapshot_required',
    `${why}. Load the work unit again; what is kept follows ${floor}.`,
    { extra: { first: floor + 1, last, afterSeq } },
  );
}

/** The refusal of a cursor from before a restore, null when it is of this store (or does not say). */
export function otherEpoch(context: ApiContext, epoch: string | undefined): OutliveError | null {
  const current = context.store.retention.epoch();
  if (epoch === undefined || epoch === current) return null;
  return new OutliveError(
    'control_plane_snapshot_required',
    'The store was restored from a backup since; its numbers may name other events. Load the work unit again and start from there.',
    { extra: { epoch: current } },
  );
}
