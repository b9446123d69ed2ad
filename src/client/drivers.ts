/** The client's methods about drivers. */
import {
  type DriverDetail,
  type DriverPage,
  type DriverRemoved,
  type DriverResumed,
  type DriverSpecInput,
  type DriverTick,
  type DriverView,
  driverDetailSchema,
  driverPageSchema,
  driverRemovedSchema,
  driverResumedSchema,
  driverTickSchema,
  driverViewSchema,
} from '../api/schemas-drivers.ts';
import type { Wire } from './wire.ts';
import { withQuery } from './wire.ts';

export interface DriverCalls {
  drivers(): Promise<DriverPage>;
  driver(name: string): Promise<DriverDetail>;
  /** The same specification again changes nothing; another one only with `replace`. */
  putDriver(name: string, spec: DriverSpecInput, replace?: boolean): Promise<DriverView>;
  /** The driver, or one subject of it. */
  pauseDriver(name: string, subject?: string): Promise<DriverView>;
  resumeDriver(name: string, subject?: string): Promise<DriverResumed>;
  removeDriver(name: string): Promise<DriverRemoved>;
  /** Returns when its census is asked for. */
  tickDriver(name: string): Promise<DriverTick>;
}

const driverPath = (name: string): string => `/drivers/${encodeURIComponent(name)}`;

export function createDriverCalls(wire: Wire): DriverCalls {
  const post = (name: string, verb: string, body: object = {}) =>
    ({ method: 'POST', path: `${driverPath(name)}/${verb}`, body }) as const;
  const about = (subject: string | undefined): object => (subject === undefined ? {} : { subject });
  return {
    drivers: () => wire.get(driverPageSchema, '/drivers'),
    driver: (name) => wire.get(driverDetailSchema, driverPath(name)),
    putDriver: (name, spec, replace = false) =>
      wire.sendFor(driverViewSchema, {
        method: 'PUT',
        path: withQuery(driverPath(name), { replace }),
        body: spec,
      }),
    pauseDriver: (name, subject) =>
      wire.sendFor(driverViewSchema, post(name, 'pause', about(subject))),
    resumeDriver: (name, subject) =>
      wire.sendFor(driverResumedSchema, post(name, 'resume', about(subject))),
    removeDriver: (name) => wire.sendFor(driverRemovedSchema, post(name, 'remove')),
    tickDriver: (name) => wire.sendFor(driverTickSchema, post(name, 'tick')),
  };
}
