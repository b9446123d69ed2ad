/** Statements about the health of providers, and about work that a provider failed. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { BREAKER_STATES, HEALTHY, type Health } from '../domain/provider-health.ts';

const time = z
  .string()
  .nullable()
  .transform((text) => (text === null ? null : Date.parse(text)));

const rowSchema = z.object({
  provider: z.string(),
  state: z.enum(BREAKER_STATES),
  failures: z.int(),
  openings: z.int(),
  openUntil: time,
  code: z.string().nullable(),
  message: z.string().nullable(),
  probe: z.string().nullable(),
});

export type ProviderRow = Health & { readonly provider: string };

const failingSchema = z.object({ failures: z.int(), since: z.string().nullable() });
const isSame = (a: Health, b: Health): boolean =>
  Object.keys(HEALTHY).every((key) => a[key as keyof Health] === b[key as keyof Health]);

export type Providers = ReturnType<typeof providerStatements>;

/** All statements of one workspace. */
export function providerStatements(db: Database, workspace: string) {
  const columns = `provider, state, failures, openings, open_until AS openUntil, code, message,
    probe_attempt_id AS probe`;
  const get = db.prepare<[string, string]>(
    `SELECT ${columns} FROM provider_health WHERE workspace_id = ? AND provider = ?`,
  );
  const list = db.prepare<[string]>(
    `SELECT ${columns} FROM provider_health WHERE workspace_id = ? ORDER BY provider`,
  );
  const put = db.prepare<Record<string, string | number | null>>(`INSERT INTO provider_health
    (workspace_id, provider, state, failures, openings, open_until, code, message,
     probe_attempt_id, updated_at)
    VALUES (@workspace, @provider, @state, @failures, @openings, @openUntil, @code, @message,
     @probe, @at)
    ON CONFLICT (workspace_id, provider) DO UPDATE SET state = excluded.state,
      failures = excluded.failures, openings = excluded.openings,
      open_until = excluded.open_until, code = excluded.code, message = excluded.message,
      probe_attempt_id = excluded.probe_attempt_id, updated_at = excluded.updated_at`);
  const failing = db.prepare<[string]>(
    `SELECT provider_failures AS failures, provider_failing_since AS since
     FROM work_units WHERE id = ?`,
  );
  const setFailing = db.prepare<[number, string | null, string]>(
    'UPDATE work_units SET provider_failures = ?, provider_failing_since = ? WHERE id = ?',
  );
  const hasten = db.prepare<[string, string]>(
    `UPDATE work_units SET not_before = NULL WHERE workspace_id = ? AND provider_preset_id = ?
       AND status = 'queued' AND provider_failures > 0`,
  );
  const waiting = db.prepare<[string, string, string], { n: number }>(
    `SELECT count(*) AS n FROM work_units WHERE workspace_id = ? AND status = 'queued'
       AND (blocked_on = ? OR (provider_preset_id = ? AND provider_failures > 0))`,
  );
  const find = (provider: string): Health => {
    const row = get.get(workspace, provider);
    if (row === undefined) return HEALTHY;
    const { provider: _name, ...health } = rowSchema.parse(row);
    return health;
  };
  return {
    /** Healthy unless it ever failed. */
    health: find,
    list: (): ProviderRow[] => list.all(workspace).map((row) => rowSchema.parse(row)),
    /** @returns false when that is how it was: then nothing was written. */
    put: (provider: string, health: Health, at: string): boolean => {
      if (isSame(find(provider), health)) return false;
      const { openUntil, ...rest } = health;
      const until = openUntil === null ? null : new Date(openUntil).toISOString();
      put.run({ workspace, provider, at, ...rest, openUntil: until });
      return true;
    },
    /** Attempts of a work unit in a row that its provider failed, and since when. */
    failing: (workUnitId: string): { failures: number; since: string | null } =>
      failingSchema.parse(failing.get(workUnitId) ?? { failures: 0, since: null }),
    setFailing: (workUnitId: string, failures: number, since: string | null): void => {
      setFailing.run(failures, since, workUnitId);
    },
    /** Lets work that backs off from this provider start at once. */
    hasten: (provider: string): void => {
      hasten.run(workspace, provider);
    },
    /** Queued work that waits for this provider, set aside or backing off. */
    waiting: (provider: string): number =>
      waiting.get(workspace, `provider ${provider}`, provider)?.n ?? 0,
  };
}
