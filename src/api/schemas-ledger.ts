/** Shapes of the ledger: one line for each attempt that has ended. */
import { z } from 'zod';
import { LEDGER_RESULTS, LEDGER_VERIFIES, type LedgerResult } from '../domain/ledger.ts';
import { MAKERS } from '../domain/work-unit.ts';
import { page, whole } from './schemas.ts';

const time = z.iso.datetime();

export const ledgerLineSchema = z.object({
  handle: z.string(),
  workUnitId: z.string(),
  attemptId: z.string(),
  attemptNumber: z.int(),
  /** The driver whose work it was, null for anybody else's. */
  driver: z.string().nullable(),
  /** What outside outlive it was about. */
  subject: z.string().nullable(),
  unit: z.string(),
  invocationId: z.string().nullable(),
  executor: z.enum(['systemd', 'direct']).nullable(),
  startedAt: time.nullable(),
  endedAt: time,
  result: z.enum(Object.keys(LEDGER_RESULTS) as [LedgerResult, ...LedgerResult[]]),
  /** Exit status: 124 for a timeout, 127 where nothing started, 130 where it was stopped, null where nobody knows. */
  rc: z.int().nullable(),
  /** `satisfied`, `blocked(CODE)`, …; null where no outcome was declared. */
  outcome: z.string().nullable(),
  verify: z.enum(LEDGER_VERIFIES).nullable(),
  /** A later daemon found it alive and took it up again. */
  reattached: z.boolean(),
  /** US dollars, null where no cost is known. */
  costUsd: z.number().nullable(),
  /** Processes that were still there when the runner had ended, null where nobody said. */
  leftovers: z.int().nullable(),
  createdByActor: z.enum(MAKERS),
});
export type LedgerLineView = z.infer<typeof ledgerLineSchema>;

export const ledgerPageSchema = page(ledgerLineSchema);
export type LedgerPage = z.infer<typeof ledgerPageSchema>;

/** Query of GET /ledger. `all=true` also tells what outlive ran for itself. */
export const ledgerQuerySchema = z.strictObject({
  order: z.enum(['newest', 'oldest']).default('newest'),
  /** Only what ended at or after this moment. */
  since: z.iso.datetime({ offset: true }).optional(),
  driver: z.string().min(1).max(256).optional(),
  handle: z.string().min(1).max(256).optional(),
  all: z.enum(['true', 'false']).default('false'),
  limit: whole(1, 1000).default(100),
  cursor: z.string().max(200).optional(),
});

/** The same as a client gives it. */
export interface LedgerQuery {
  readonly order?: 'newest' | 'oldest';
  readonly since?: string | undefined;
  readonly driver?: string | undefined;
  readonly handle?: string | undefined;
  readonly all?: boolean | undefined;
  readonly limit?: number;
  readonly cursor?: string | undefined;
}
