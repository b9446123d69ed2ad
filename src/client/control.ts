/** The client's methods about the workspace as a whole: diagnostics, resources, channels, admission. */
import {
  type AttemptView,
  attemptViewSchema,
  type RuntimeView,
  runtimeViewSchema,
} from '../api/schemas.ts';
import { type LedgerPage, type LedgerQuery, ledgerPageSchema } from '../api/schemas-ledger.ts';
import { type LinearStatusView, linearStatusSchema } from '../api/schemas-linear.ts';
import {
  type BackupInput,
  type BackupView,
  backupViewSchema,
  type CollectInput,
  type CollectView,
  collectViewSchema,
} from '../api/schemas-maintenance.ts';
import {
  type DaySpendView,
  daySpendViewSchema,
  type ProviderPage,
  type ProviderView,
  providerPageSchema,
  providerViewSchema,
} from '../api/schemas-provider.ts';
import {
  type ActivePage,
  type AdmissionView,
  activePageSchema,
  admissionViewSchema,
  type ChannelPage,
  type ChannelPolicyInput,
  type ChannelView,
  channelPageSchema,
  channelViewSchema,
  type LeasePage,
  leasePageSchema,
  type ReconcileView,
  reconcileReportSchema,
  type SemaphorePage,
  type StuckPage,
  type SupervisorView,
  semaphorePageSchema,
  stuckPageSchema,
  supervisorViewSchema,
  type WorkspaceEventPage,
  workspaceEventPageSchema,
} from '../api/schemas-runtime.ts';
import type { Wire } from './wire.ts';

/** A look at every unit asks systemd; the daemon itself gives up after 10 s. */
export const RECONCILE_MS = 15_000;

/** Upkeep goes through the whole state directory; it answers when it is done. */
const UPKEEP_MS = 60 * 60_000;

export interface Control {
  runtime(): Promise<RuntimeView>;
  /** Counts, admission, queue, blockers, the last recovery and the newest position. */
  supervisor(): Promise<SupervisorView>;
  active(): Promise<ActivePage>;
  stuck(): Promise<StuckPage>;
  leases(): Promise<LeasePage>;
  semaphores(): Promise<SemaphorePage>;
  reconcileAll(): Promise<ReconcileView>;
  /** Durable, also over restarts of the daemon. */
  pause(): Promise<AdmissionView>;
  drain(): Promise<AdmissionView>;
  resume(): Promise<AdmissionView>;
  /** Removes what retention no longer keeps. */
  collect(input?: CollectInput): Promise<CollectView>;
  /** Copies the store to a file of the daemon's machine. */
  backup(input: BackupInput): Promise<BackupView>;
  listChannels(): Promise<ChannelPage>;
  getChannel(id: string): Promise<ChannelView>;
  /** Makes or changes a channel; what is left out stays as it is. */
  putChannel(id: string, policy: ChannelPolicyInput): Promise<ChannelView>;
  providers(): Promise<ProviderPage>;
  /** Ends the pause of a provider. */
  resumeProvider(name: string): Promise<ProviderView>;
  /** What was spent today. */
  spend(): Promise<DaySpendView>;
  /** How the Linear agent is. */
  linearStatus(): Promise<LinearStatusView>;
  getAttempt(id: string): Promise<AttemptView>;
  /** One page of attempts that have ended, newest first unless asked otherwise. */
  ledger(query?: LedgerQuery): Promise<LedgerPage>;
  /** One page of the workspace's events after a position. */
  workspaceEvents(options?: {
    afterPosition?: number;
    limit?: number;
  }): Promise<WorkspaceEventPage>;
}

const channelPath = (id: string): string => `/channels/${encodeURIComponent(id)}`;

export function createControl(wire: Wire): Control {
  const admit = (verb: string): Promise<AdmissionView> =>
    wire.sendFor(admissionViewSchema, { method: 'POST', path: `/runtime/${verb}`, body: {} });
  return {
    runtime: () => wire.get(runtimeViewSchema, '/runtime'),
    supervisor: () => wire.get(supervisorViewSchema, '/runtime/supervisor'),
    active: () => wire.get(activePageSchema, '/runtime/active'),
    stuck: () => wire.get(stuckPageSchema, '/runtime/stuck'),
    leases: () => wire.get(leasePageSchema, '/runtime/leases'),
    semaphores: () => wire.get(semaphorePageSchema, '/runtime/semaphores'),
    reconcileAll: () =>
      wire.sendFor(reconcileReportSchema, {
        method: 'POST',
        path: '/runtime/reconcile',
        body: {},
        timeoutMs: RECONCILE_MS,
      }),
    pause: () => admit('pause'),
    drain: () => admit('drain'),
    resume: () => admit('resume'),
    collect: (input = {}) =>
      wire.sendFor(collectViewSchema, {
        method: 'POST',
        path: '/maintenance/gc',
        body: input,
        timeoutMs: UPKEEP_MS,
      }),
    backup: (input) =>
      wire.sendFor(backupViewSchema, {
        method: 'POST',
        path: '/maintenance/backup',
        body: input,
        timeoutMs: UPKEEP_MS,
      }),
    listChannels: () => wire.get(channelPageSchema, '/channels'),
    getChannel: (id) => wire.get(channelViewSchema, channelPath(id)),
    putChannel: (id, policy) =>
      wire.sendFor(channelViewSchema, { method: 'PUT', path: channelPath(id), body: policy }),
    providers: () => wire.get(providerPageSchema, '/providers'),
    resumeProvider: (name) =>
      wire.sendFor(providerViewSchema, {
        method: 'POST',
        path: `/providers/${encodeURIComponent(name)}/resume`,
        body: {},
      }),
    spend: () => wire.get(daySpendViewSchema, '/spend'),
    linearStatus: () => wire.get(linearStatusSchema, '/linear/status'),
    getAttempt: (id) => wire.get(attemptViewSchema, `/attempts/${encodeURIComponent(id)}`),
    ledger: (query = {}) => wire.get(ledgerPageSchema, '/ledger', { ...query }),
    workspaceEvents: (options = {}) => wire.get(workspaceEventPageSchema, '/events', options),
  };
}
