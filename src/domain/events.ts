/**
 * The vocabulary of event types: the one place that names them.
 *
 * An event is durable, ordered by `seq` within its work unit, and never changes.
 * Families with a dot come from the daemon; a few are the runner's own words.
 */
import { z } from 'zod';

/** What the daemon says about a work unit, its resources and its health. */
export const DAEMON_EVENT_TYPES = [
  'work_unit.created',
  'work_unit.queued',
  'work_unit.claimed',
  'work_unit.started',
  'work_unit.heartbeat',
  'work_unit.progress',
  'work_unit.approval_requested',
  'work_unit.cancelling',
  'work_unit.succeeded',
  'work_unit.failed',
  'work_unit.cancelled',
  'work_unit.stale',
  /** What success was to leave behind was looked at, after the end; see outcome.ts. */
  'outcome.settled',
  'lease.acquired',
  'lease.renewed',
  'lease.released',
  'semaphore.acquired',
  'semaphore.released',
  'artifact.created',
  /** A question, its answer or its checkpoint changed: load it again. */
  'approval.changed',
  'diagnostic.stuck_detected',
  'attempt.created',
  'attempt.reattached',
  'attempt.ended',
  'diagnostic.spool_line_corrupt',
  'diagnostic.spool_truncated',
  'diagnostic.stale_event',
  'diagnostic.evidence_disagrees',
  'diagnostic.exit_record_unusable',
  'diagnostic.foreign_unit',
  /** An event of a wrapper of a later minor version, kept as it is. */
  'diagnostic.spool_event_unknown',
  /** Spool or exit record of a later major version: kept for an outlive that knows it. */
  'diagnostic.version_unknown',
  'diagnostic.start_backoff',
  'diagnostic.provider_paused',
  /** What was to be told to Linear was refused for good, or waited too long. */
  'diagnostic.undelivered',
  /** Of what it waits for so much failed that it cannot start unless something is retried. */
  'diagnostic.dependency_failed',
] as const;

/** What the wrapper writes into the spool, in the order things happened. */
export const SPOOL_EVENT_TYPES = [
  /** First line: who writes, with nonce, InvocationID and boot id. */
  'attempt.opened',
  /** The wrapper reached the hard deadline itself, a moment before systemd would. */
  'attempt.deadline',
  /** The wrapper was told to stop (SIGTERM) or to abort (control socket). */
  'attempt.told_to_stop',
  /** The runner's program is up. */
  'started',
  'progress',
  'stdout_delta',
  'stderr_delta',
  'agent.message',
  'agent.thought',
  'tool.start',
  'tool.update',
  'tool.end',
  /** A call that was not let through: by policy, by a person, or because nothing fences it. */
  'tool.refused',
  /** A call waits for a person. */
  'approval.requested',
  /** The wrapper heard the answer, or the question was dropped. */
  'approval.resolved',
  'succeeded',
  'failed',
  /** Last line: verdict, final text, usage, cost, processes left behind. */
  'runner.finished',
] as const;

export const EVENT_TYPES = [...DAEMON_EVENT_TYPES, ...SPOOL_EVENT_TYPES] as const;
export type EventType = (typeof EVENT_TYPES)[number];
export type SpoolEventType = (typeof SPOOL_EVENT_TYPES)[number];

export const eventTypeSchema = z.enum(EVENT_TYPES);

/** The domain of an event: what stands before the dot; words of the runner itself have none. */
const domainOf = (type: EventType): string =>
  type.includes('.') ? (type.split('.')[0] ?? '') : 'runner';

/** Every domain there is. */
export const EVENT_DOMAINS: readonly string[] = [...new Set(EVENT_TYPES.map(domainOf))];

/** All types of these domains. */
export const typesOfDomains = (domains: readonly string[]): EventType[] =>
  EVENT_TYPES.filter((type) => domains.includes(domainOf(type)));

/** Events after which nothing more happens to a work unit (unless somebody retries it). */
export const TERMINAL_EVENT_TYPES: ReadonlySet<EventType> = new Set([
  'work_unit.succeeded',
  'work_unit.failed',
  'work_unit.cancelled',
]);

/**
 * What counts as meaningful progress for the idle clock. A heartbeat never does
 * (status pings once kept a dead run "alive" for four days: case T32).
 */
export const PROGRESS_EVENT_TYPES: ReadonlySet<EventType> = new Set([
  'started',
  'progress',
  'stdout_delta',
  'stderr_delta',
  'agent.message',
  'agent.thought',
  'tool.start',
  'tool.update',
  'tool.end',
]);
