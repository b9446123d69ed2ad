/** Work units and attempts: their shapes, field names as on the API and in the store. */
import { z } from 'zod';

export const WORK_UNIT_KINDS = [
  'task_run',
  'channel_turn_dispatch',
  'channel_ai_reply',
  'teammate_direct_reply',
  'external_work_step',
  'external_work_action',
  'media_job',
] as const;
export type WorkUnitKind = (typeof WORK_UNIT_KINDS)[number];

export const WORK_UNIT_STATUSES = [
  'queued',
  'claimed',
  'running',
  'waiting_for_approval',
  'cancelling',
  'succeeded',
  'failed',
  'cancelled',
  'stale',
] as const;
export type WorkUnitStatus = (typeof WORK_UNIT_STATUSES)[number];

export const ATTEMPT_STATUSES = [
  'created',
  'started',
  'waiting_for_approval',
  'cancelling',
  'succeeded',
  'failed',
  'cancelled',
  'lost',
] as const;
export type AttemptStatus = (typeof ATTEMPT_STATUSES)[number];

/** Who caused a work unit or an event. `external`: somebody outside outlive, as far as evidence goes. */
export const ACTORS = ['user', 'system', 'scheduler', 'operator', 'external', 'runner'] as const;
export type Actor = (typeof ACTORS)[number];

/** Who may make a work unit. */
export const MAKERS = ['user', 'system', 'scheduler'] as const;
export type Maker = (typeof MAKERS)[number];

export const TERMINAL_STATUSES: ReadonlySet<WorkUnitStatus> = new Set([
  'succeeded',
  'failed',
  'cancelled',
]);
export const TERMINAL_ATTEMPT_STATUSES: ReadonlySet<AttemptStatus> = new Set([
  'succeeded',
  'failed',
  'cancelled',
  'lost',
]);

/** What an attempt executes. */
export const RUNNERS = ['pi', 'command'] as const;
export type RunnerId = (typeof RUNNERS)[number];

/** All in milliseconds. */
export const timeoutPolicySchema = z.strictObject({
  heartbeatIntervalMs: z.int().min(100).max(3_600_000),
  heartbeatTimeoutMs: z.int().min(1_000).max(86_400_000),
  idleTimeoutMs: z.int().min(1_000).max(2_592_000_000),
  hardTimeoutMs: z.int().min(1_000).max(2_592_000_000),
  cancelGraceMs: z.int().min(0).max(600_000),
  /** One tool call in flight; while it runs the idle clock stands. */
  toolTimeoutMs: z
    .int()
    .min(1_000)
    .max(2_592_000_000)
    .default(30 * 60_000),
});
export type TimeoutPolicy = z.infer<typeof timeoutPolicySchema>;

const MINUTE = 60_000;
const BASE: TimeoutPolicy = {
  heartbeatIntervalMs: 10_000,
  heartbeatTimeoutMs: 45_000,
  idleTimeoutMs: 10 * MINUTE,
  hardTimeoutMs: 60 * MINUTE,
  cancelGraceMs: 15_000,
  toolTimeoutMs: 30 * MINUTE,
};
const CHAT: Partial<TimeoutPolicy> = { idleTimeoutMs: 2 * MINUTE, hardTimeoutMs: 15 * MINUTE };

/** Default timeouts of a kind: chat replies are short, steps driven by a loop may take 90 minutes. */
export function defaultTimeouts(kind: WorkUnitKind): TimeoutPolicy {
  if (kind === 'channel_ai_reply' || kind === 'teammate_direct_reply') return { ...BASE, ...CHAT };
  if (kind === 'external_work_step') return { ...BASE, hardTimeoutMs: 90 * MINUTE };
  return BASE;
}
