/** What config.json says of providers, money and memory, as the supervisor uses it. */
import type { KeyProxySpec } from '../domain/attempt-files.ts';
import { OPEN_POLICY, type ToolPolicy } from '../domain/decisions.ts';
import { type BreakerPolicy, DEFAULT_BREAKER } from '../domain/provider-health.ts';
import { DEFAULT_PROVIDER_RETRY, type ProviderRetry } from '../domain/provider-retry.ts';
import type { SpendCeiling } from '../domain/spend.ts';
import type { WorkUnitKind } from '../domain/work-unit.ts';

/** A provider with a model, under a name of its own; what its slots and its health are counted by. */
export interface Preset {
  readonly provider: string;
  readonly model: string;
  /** How many may run at once, null for any number. */
  readonly maxParallel: number | null;
}

/** What a person is asked before a tool acts, and how long that may take. */
export interface ApprovalPolicies {
  /** Of the whole workspace; a work unit's own, its channel's or its kind's goes before it. */
  readonly policy: ToolPolicy;
  readonly kinds: Readonly<Partial<Record<WorkUnitKind, ToolPolicy>>>;
  readonly channels: Readonly<Record<string, ToolPolicy>>;
  /** How long a question stays open, milliseconds. */
  readonly expireAfterMs: number;
  /** An attempt that waits for longer is suspended: it holds no process, lease or slot then. */
  readonly suspendAfterMs: number;
}

export interface Policies {
  readonly approvals: ApprovalPolicies;
  readonly providerRetry: ProviderRetry;
  readonly breaker: BreakerPolicy;
  readonly presets: Readonly<Record<string, Preset>>;
  /** Providers of Pi's whose keys stay with the wrapper. */
  readonly keyProxy: readonly KeyProxySpec[];
  readonly spend: {
    /** IANA name: whose midnight ends a day. */
    readonly timeZone: string;
    /** Of the whole workspace, for one day. */
    readonly day: SpendCeiling;
    /** Of one work unit, by its kind. */
    readonly kinds: Readonly<Partial<Record<WorkUnitKind, SpendCeiling>>>;
  };
  /** Nothing is claimed while less is free, bytes; null for no such condition. */
  readonly minFreeMemory: number | null;
  /** Bytes that are free for us now, null when that cannot be told. */
  readonly freeMemory: () => number | null;
}

/** As with an empty config.json. */
export const DEFAULT_POLICIES: Policies = {
  approvals: {
    policy: OPEN_POLICY,
    kinds: {},
    channels: {},
    expireAfterMs: 24 * 3_600_000,
    suspendAfterMs: 30 * 60_000,
  },
  providerRetry: DEFAULT_PROVIDER_RETRY,
  breaker: DEFAULT_BREAKER,
  presets: {},
  keyProxy: [],
  spend: { timeZone: 'UTC', day: {}, kinds: {} },
  minFreeMemory: null,
  freeMemory: () => null,
};
