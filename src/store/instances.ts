/** Statements of the daemon's own starts, and of what each took over from a dead one. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { OutliveError } from '../domain/errors.ts';
import type { RuntimeOwner } from './owner-file.ts';

export interface RuntimeInstance {
  readonly id: string;
  readonly pid: number;
  readonly version: string;
  readonly startedAt: string;
}

const takeoverSchema = z.object({
  at: z.string(),
  /** Who took over. */
  runtimeInstanceId: z.string(),
  previousInstanceId: z.string(),
  previousPid: z.int(),
  previousStartedAt: z.string(),
  previousVersion: z.string(),
  /** How it was known to be dead: always the kernel lock, which it did not hold any more. */
  evidence: z.literal('kernel_lock_free'),
});
export type Takeover = z.infer<typeof takeoverSchema>;

export function instanceStatements(db: Database) {
  const insert = db.prepare<RuntimeInstance>(
    `INSERT INTO runtime_instances (id, pid, version, started_at) VALUES (@id, @pid, @version, @startedAt)`,
  );
  // Once per dead owner: whoever was to store it may have died just after it did.
  const takeover = db.prepare<Takeover>(
    `INSERT OR IGNORE INTO runtime_takeovers (previous_instance_id, previous_pid, previous_started_at,
       previous_version, runtime_instance_id, evidence, at)
     VALUES (@previousInstanceId, @previousPid, @previousStartedAt, @previousVersion,
       @runtimeInstanceId, @evidence, @at)`,
  );
  const newest = db.prepare<[number]>(
    `SELECT at, runtime_instance_id AS runtimeInstanceId, previous_instance_id AS previousInstanceId,
       previous_pid AS previousPid, previous_started_at AS previousStartedAt,
       previous_version AS previousVersion, evidence
     FROM runtime_takeovers ORDER BY rowid DESC LIMIT ?`,
  );
  const known = db.prepare<[string]>('SELECT 1 FROM runtime_instances WHERE id = ?');
  const record = db.transaction(
    (instance: RuntimeInstance, deadOwners: readonly RuntimeOwner[]): void => {
      if (known.get(instance.id) !== undefined) {
        throw new OutliveError('internal', `A daemon had the id ${instance.id} before.`);
      }
      insert.run(instance);
      for (const dead of deadOwners) {
        takeover.run({
          at: instance.startedAt,
          runtimeInstanceId: instance.id,
          previousInstanceId: dead.runtimeInstanceId,
          previousPid: dead.pid,
          previousStartedAt: dead.startedAt,
          previousVersion: dead.version,
          evidence: 'kernel_lock_free',
        });
      }
    },
  );
  return {
    record: (instance: RuntimeInstance, deadOwners: readonly RuntimeOwner[]): void =>
      record.immediate(instance, deadOwners),
    takeovers: (limit: number): readonly Takeover[] =>
      newest.all(limit).map((row) => takeoverSchema.parse(row)),
  };
}
