/** Shapes of drivers: who looks for work, when next, and what came of it. */
import { z } from 'zod';
import {
  DRIVER_SOURCES,
  driverNameSchema,
  driverSpecSchema,
  tickReportSchema,
} from '../domain/driver.ts';
import { OUTCOME_STATES } from '../domain/outcome.ts';
import { shortText } from '../domain/request.ts';
import { WORK_UNIT_STATUSES } from '../domain/work-unit.ts';
import { page } from './schemas.ts';

const time = z.iso.datetime();

export const driverParamsSchema = z.strictObject({ name: driverNameSchema });
/** Query of PUT /drivers/:name. */
export const driverPutQuerySchema = z.strictObject({
  replace: z.enum(['true', 'false']).default('false'),
});
export type { DriverSpecInput } from '../domain/driver.ts';
export { driverSpecSchema };

/** Body of pause and resume: the driver, or one subject of it. */
export const driverSubjectSchema = z.strictObject({ subject: shortText.optional() });

const driverFields = {
  name: z.string(),
  /** `file`: it is kept in config.json. */
  source: z.enum(DRIVER_SOURCES),
  state: z.enum(['active', 'paused']),
  /** Grows with each change of the specification. */
  revision: z.int(),
  /** Values of variables are left out. */
  spec: driverSpecSchema,
  /** The tick that is under way. */
  underWay: z.object({ tick: z.int(), censusId: z.string(), startedAt: time }).nullable(),
  /** When it ticks next; null where only a request makes it tick. */
  nextAt: time.nullable(),
  /** Ticks in a row that failed; why is in `last`. */
  failures: z.int(),
  /** What came of the last tick that ended. */
  last: tickReportSchema.nullable(),
  /** Subjects that are worked on or verified. */
  working: z.int(),
  held: z.int(),
  createdAt: time,
  updatedAt: time,
};

export const driverViewSchema = z.object(driverFields);
export type DriverView = z.infer<typeof driverViewSchema>;
export const driverPageSchema = page(driverViewSchema);
export type DriverPage = z.infer<typeof driverPageSchema>;

export const driverDetailSchema = z.object({
  ...driverFields,
  /** Subjects that nobody works on until they are resumed. */
  holds: z.array(
    z.object({
      subject: z.string(),
      /** The work that was stopped; null where none was. */
      workUnitId: z.string().nullable(),
      code: z.string(),
      heldAt: time,
    }),
  ),
  /** The newest work on each subject, newest first. */
  subjects: z.array(
    z.object({
      subject: z.string(),
      workUnitId: z.string(),
      handle: z.string(),
      status: z.enum(WORK_UNIT_STATUSES),
      errorCode: z.string().nullable(),
      outcome: z.enum(OUTCOME_STATES).nullable(),
      attempts: z.int(),
      createdAt: time,
      endedAt: time.nullable(),
    }),
  ),
});
export type DriverDetail = z.infer<typeof driverDetailSchema>;

export const driverResumedSchema = z.object({
  driver: driverViewSchema,
  /** Subjects that were held. */
  released: z.array(z.string()),
});
export type DriverResumed = z.infer<typeof driverResumedSchema>;

export const driverTickSchema = z.object({
  driver: driverViewSchema,
  /** The tick that is under way now; `driver.last` tells of it where it has ended already. */
  tick: z.int(),
  /** False when it was under way before. */
  begun: z.boolean(),
});
export type DriverTick = z.infer<typeof driverTickSchema>;

export const driverRemovedSchema = z.object({ name: z.string() });
export type DriverRemoved = z.infer<typeof driverRemovedSchema>;
