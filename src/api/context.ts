/** What the API's routes work with. */

import type { Store } from '../store/store.ts';
import type { Hub } from '../supervisor/hub.ts';
import type { Maintenance } from '../supervisor/maintenance.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import type { RuntimeView } from './schemas.ts';

export interface ApiContext {
  readonly store: Store;
  readonly supervisor: Supervisor;
  readonly maintenance: Maintenance;
  readonly hub: Hub;
  runtime(): RuntimeView;
}
