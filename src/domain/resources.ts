/** What work holds while it runs: leases are exclusive, slots are counted. Pure. */
import { z } from 'zod';

export const LEASE_TYPES = [
  'task',
  'channel',
  'bound_path',
  'workspace',
  'workflow_step',
  'external_subject',
  'external_workspace',
  'approval_owner',
] as const;
export type LeaseType = (typeof LEASE_TYPES)[number];

export const SLOT_TYPES = ['provider', 'channel_parallel', 'runner', 'media_provider'] as const;
export type SlotType = (typeof SLOT_TYPES)[number];

export const leaseRequestSchema = z.strictObject({
  type: z.enum(LEASE_TYPES),
  /** For bound_path an absolute path; else any name. */
  key: z.string().min(1).max(4096),
});
export type LeaseRequest = z.infer<typeof leaseRequestSchema>;

export const needSchema = z.discriminatedUnion('form', [
  z.object({ form: z.literal('lease'), type: z.enum(LEASE_TYPES), key: z.string() }),
  z.object({ form: z.literal('slot'), type: z.enum(SLOT_TYPES), key: z.string() }),
]);
/** One thing a work unit must hold to run. */
export type Need = z.infer<typeof needSchema>;
export type LeaseNeed = Extract<Need, { form: 'lease' }>;
export type SlotNeed = Extract<Need, { form: 'slot' }>;

/** How a resource is named in what queued work waits for: `lease bound_path /repo`. */
export const resourceName = ({ form, type, key }: Need): string => `${form} ${type} ${key}`;

/** True when `inner` is `outer` or lies below it. Both absolute, without links, dots or a final slash. */
export function pathCovers(outer: string, inner: string): boolean {
  return inner === outer || outer === '/' || inner.startsWith(`${outer}/`);
}

/**
 * True when the two cannot be held by two attempts at once. Work on /repo excludes work
 * on /repo/sub and the other way round: either could change the other's files.
 */
export function leasesConflict(
  a: Pick<LeaseNeed, 'type' | 'key'>,
  b: Pick<LeaseNeed, 'type' | 'key'>,
): boolean {
  if (a.type !== b.type) return false;
  if (a.type !== 'bound_path') return a.key === b.key;
  return pathCovers(a.key, b.key) || pathCovers(b.key, a.key);
}

/** What is done with older live work on the same external subject when newer work comes. */
export const SUBJECT_POLICIES = ['block', 'supersede', 'queue'] as const;
export type SubjectPolicy = (typeof SUBJECT_POLICIES)[number];

export const CHANNEL_STATUSES = ['active', 'paused', 'archived'] as const;
export type ChannelStatus = (typeof CHANNEL_STATUSES)[number];

/** Whether queued work of the workspace is taken: paused and draining take none. */
export const ADMISSIONS = ['open', 'paused', 'draining'] as const;
export type Admission = (typeof ADMISSIONS)[number];
