/** What the API's routes work with. */

import type { DriverSpec } from '../domain/driver.ts';
import type { DriverRow } from '../store/drivers.ts';
import type { Store } from '../store/store.ts';
import type { Hub } from '../supervisor/hub.ts';
import type { Maintenance } from '../supervisor/maintenance.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { FramePages } from './frames.ts';
import type { RuntimeView } from './schemas.ts';
import type { LinearDetails } from './schemas-linear.ts';

/** How the Linear agent is; null where Linear is not configured. */
export type LinearStatus = () => LinearDetails | null;

/** What all streams have in common. */
export interface Streams {
  readonly pages: FramePages;
  /** A client that takes nothing for this long is dismissed, milliseconds. */
  readonly stallMs: number;
  readonly timers: {
    /** Runs `callback` once after `ms`; returns its cancellation, harmless afterwards. */
    after(ms: number, callback: () => void): () => void;
  };
}

/** The drivers; every method that names one throws OutliveError `not_found`. */
export interface DriverPort {
  list(): readonly DriverRow[];
  get(name: string): DriverRow;
  put(name: string, spec: DriverSpec, replace: boolean): DriverRow;
  pause(name: string, subject?: string): DriverRow;
  resume(
    name: string,
    subject?: string,
  ): { readonly row: DriverRow; readonly released: readonly string[] };
  remove(name: string): void;
  /** Begins a tick, unless one is under way. */
  tick(name: string): { readonly row: DriverRow; readonly begun: boolean };
  /** The workspace takes work again, or no more. */
  wake(): void;
}

export interface ApiContext {
  readonly store: Store;
  readonly supervisor: Supervisor;
  readonly maintenance: Maintenance;
  readonly hub: Hub;
  readonly streams: Streams;
  runtime(): RuntimeView;
  readonly linearStatus: LinearStatus;
  readonly drivers: DriverPort;
}
