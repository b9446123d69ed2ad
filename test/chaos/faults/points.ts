/** The daemon dies at each named line of src/supervisor/faults.ts. */
import { FAULT_POINTS } from '../../../src/supervisor/faults.ts';
import { type Fault, strike } from './fault.ts';

export const POINT_PREFIX = 'point:';

/** The runner arms the daemon with it from its first start (keeper.ts): nothing else to do. */
export const POINT_FAULTS: readonly Fault[] = FAULT_POINTS.map((point) => ({
  name: `${POINT_PREFIX}${point}`,
  family: 'point',
  inject: async (round) => strike(round, `${POINT_PREFIX}${point}`, []),
}));
