/**
 * Named points at which a test kills the daemon: between an intent and its effect,
 * and between an effect and its record. In production nothing is armed.
 */
export const FAULT_POINTS = [
  /** The claim is committed; nothing of the attempt is on disk yet. */
  'claimed',
  /** launch.json is on disk; systemd has not been asked. */
  'prepared',
  /** systemd was asked and answered; the store does not know the unit runs. */
  'start_answered',
  /** The start is committed; nobody watches the attempt yet. */
  'started',
  /** Its unit is gone and its claim is decided, so nothing of it can start; its end is not committed. */
  'claim_decided',
  /** Spool lines were read; their events are not committed. */
  'spool_read',
  /** The evidence is read; the outcome is not committed. */
  'evidence_read',
  /** The outcome is committed; the unit is still held. */
  'concluded',
  /** A cancellation is committed; the unit was not told. */
  'cancel_intended',
  /** A person's answer is committed; the attempt was not told. */
  'approval_decided',
  /** Suspensions are committed; no unit was told. */
  'suspended',
  /** A compaction is stored and the floors are raised; nothing is gone yet. */
  'gc_marked',
  /** The files are set aside; every row is still there. */
  'gc_moved',
  /** Some of the events are gone. */
  'gc_events_dropped',
  /** The rows are gone; the files that were set aside are still there. */
  'gc_finished',
] as const;
export type FaultPoint = (typeof FAULT_POINTS)[number];

export const isFaultPoint = (name: string): name is FaultPoint =>
  (FAULT_POINTS as readonly string[]).includes(name);

/** Called at a fault point; a no-op unless a test armed it. */
export type Faults = (point: FaultPoint) => void;

export const noFaults: Faults = () => undefined;

/** Dies at the `count`-th pass of `point`, the way a power cut does: no clean-up runs. */
export function killAt(point: FaultPoint, count = 1): Faults {
  let left = count;
  return (passed) => {
    if (passed !== point || --left > 0) return;
    process.kill(process.pid, 'SIGKILL');
    // The signal is delivered before kill(2) returns to this thread only most of the time.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  };
}
