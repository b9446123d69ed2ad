/**
 * Statements about the queue: which queued work unit is looked at next, what the others
 * wait for, and who is looked at again when that is released. A unit that waits costs
 * nothing until its resource moves, so the queue may be long.
 */
import type { Database } from 'better-sqlite3';

export interface Waiting {
  readonly id: string;
  /** The resource whose release let it be looked at again. */
  readonly wokenBy: string | null;
}

/** How the names of work that other work waits for begin in what that waits for. */
export const AFTER = 'after ';

/**
 * How the names of what opens by policy or with time begin. Work that waits for its own
 * lane, its provider, money or other work does not starve, however long: nothing is kept free for a
 * channel or a provider that is paused.
 */
const GATES = ['slot channel_parallel ', 'provider ', 'spend ', 'approval ', AFTER] as const;

/** True for what nothing else may be kept free for meanwhile. */
export const isGate = (resource: string): boolean =>
  GATES.some((gate) => resource.startsWith(gate));

const NO_GATE = GATES.map((gate) => `blocked_on NOT LIKE '${gate}%'`).join(' AND ');

export type Queue = ReturnType<typeof queueStatements>;

/**
 * A delay that began in the future began before the clock was set back: it would last as long
 * as the clock was wrong, so it counts as over.
 */
const READY = `FROM work_units WHERE workspace_id = @workspace AND status = 'queued'
  AND blocked_on IS NULL AND (not_before IS NULL OR not_before <= @now OR updated_at > @now)`;

/** Who has waited so long that something is kept free for it. */
function starvation(db: Database, workspace: string) {
  const starving = db.prepare<Record<string, string>, { id: string }>(
    `SELECT id FROM work_units WHERE workspace_id = @workspace AND status = 'queued'
       AND blocked_since IS NOT NULL AND blocked_since < @before
       AND (blocked_on IS NULL OR (${NO_GATE}))
     ORDER BY blocked_since, id LIMIT 1`,
  );
  // Of the longest starving few: behind thousands of others no claim may cost more.
  const starvingForSlot = db.prepare<Record<string, string>, { id: string }>(
    `SELECT id FROM (SELECT id, blocked_since FROM work_units
       WHERE workspace_id = @workspace AND status = 'queued'
         AND blocked_since IS NOT NULL AND blocked_since < @before
         AND (blocked_on IS NULL OR (blocked_on LIKE 'slot %' AND ${NO_GATE}))
       ORDER BY blocked_since, id LIMIT 100) AS starving
     WHERE EXISTS (SELECT 1 FROM work_unit_needs WHERE work_unit_id = starving.id
         AND form = 'slot' AND resource_type = @type AND resource_key = @key)
       AND EXISTS (SELECT 1 FROM work_unit_needs WHERE work_unit_id = starving.id
         AND form || ' ' || resource_type || ' ' || resource_key
           IN (SELECT value FROM json_each(@scarce)))
     ORDER BY blocked_since, id LIMIT 1`,
  );
  const isWaitedFor = db.prepare<Record<string, string>>(
    `SELECT 1 FROM work_units
     WHERE blocked_on = @resource AND status = 'queued' AND workspace_id = @workspace LIMIT 1`,
  );
  const wake = db.prepare<[string, string]>(`UPDATE work_units
    SET blocked_on = NULL, woken_by = ?
    WHERE id = ? AND status = 'queued' AND blocked_on IS NOT NULL`);
  return {
    /** The unit that has been set aside longest, if that was before `before` and not for its lane. */
    starving: (before: string): string | null => starving.get({ workspace, before })?.id ?? null,
    /** The unit that was set aside longest, before `before`, and needs this slot and a scarce one. */
    starvingForSlot: (
      before: string,
      { type, key }: { type: string; key: string },
      scarce: readonly string[],
    ): string | null =>
      starvingForSlot.get({ workspace, before, type, key, scarce: JSON.stringify(scarce) })?.id ??
      null,
    isWaitedFor: (resource: string): boolean =>
      isWaitedFor.get({ workspace, resource }) !== undefined,
    /** Lets this one be looked at again, because of `resource`. */
    wake: (id: string, resource: string): void => {
      wake.run(resource, id);
    },
  };
}

export function queueStatements(db: Database, workspace: string) {
  const best = db.prepare<Record<string, string>, Waiting>(
    `SELECT id, woken_by AS wokenBy ${READY} ORDER BY priority DESC, created_at, id LIMIT 1`,
  );
  const oldest = db.prepare<Record<string, string>, Waiting>(
    `SELECT id, woken_by AS wokenBy ${READY} ORDER BY created_at, id LIMIT 1`,
  );
  const block = db.prepare<[string, string, string]>(`UPDATE work_units
    SET blocked_on = ?, blocked_since = coalesce(blocked_since, ?), woken_by = NULL WHERE id = ?`);
  // The oldest too: else better work that keeps coming would be woken in its place for ever.
  const wakeNext = db.prepare<Record<string, string>>(`UPDATE work_units
    SET blocked_on = NULL, woken_by = @resource
    WHERE id = (SELECT id FROM work_units
      WHERE blocked_on = @resource AND status = 'queued' AND workspace_id = @workspace
      ORDER BY priority DESC, created_at, id LIMIT 1)
    OR id = (SELECT id FROM work_units
      WHERE blocked_on = @resource AND status = 'queued' AND workspace_id = @workspace
      ORDER BY created_at, id LIMIT 1)`);
  const wakeEvery = db.prepare<Record<string, string>>(`UPDATE work_units
    SET blocked_on = NULL, woken_by = NULL
    WHERE blocked_on = @resource AND status = 'queued' AND workspace_id = @workspace`);
  const wakeAll = db.prepare<[string]>(`UPDATE work_units SET blocked_on = NULL, woken_by = NULL
    WHERE workspace_id = ? AND status = 'queued' AND blocked_on IS NOT NULL`);
  // It waited for nothing that somebody else could have had before it.
  const openAfter = db.prepare<[string]>(`UPDATE work_units
    SET blocked_on = NULL, blocked_since = NULL, woken_by = NULL
    WHERE id = ? AND status = 'queued' AND blocked_on LIKE '${AFTER}%'`);
  const clear = db.prepare<[string]>(`UPDATE work_units
    SET blocked_on = NULL, blocked_since = NULL, woken_by = NULL, not_before = NULL WHERE id = ?`);
  const delay = db.prepare<[string, string]>('UPDATE work_units SET not_before = ? WHERE id = ?');
  const nextDue = db.prepare<Record<string, string>, { at: string | null }>(
    `SELECT min(not_before) AS at FROM work_units
     WHERE workspace_id = @workspace AND status = 'queued' AND not_before > @now`,
  );
  const waiting = db.prepare<
    [string],
    {
      blockedOn: string | null;
      blockedSince: string | null;
      notBefore: string | null;
      wokenBy: string | null;
    }
  >(
    `SELECT blocked_on AS blockedOn, blocked_since AS blockedSince, not_before AS notBefore,
       woken_by AS wokenBy
     FROM work_units WHERE id = ?`,
  );
  const counts = db.prepare<[string], { queued: number; blocked: number }>(
    `SELECT count(*) AS queued, count(blocked_on) AS blocked
     FROM work_units WHERE workspace_id = ? AND status = 'queued'`,
  );
  return {
    ...starvation(db, workspace),
    /** The next to look at, by priority, then age; null when none is ready. */
    best: (now: string): Waiting | null => best.get({ workspace, now }) ?? null,
    /** The same by age alone: taken now and then, so that nothing waits for ever behind priorities. */
    oldest: (now: string): Waiting | null => oldest.get({ workspace, now }) ?? null,
    /** Sets a unit aside until `resource` is released. */
    block: (id: string, resource: string, at: string): void => {
      block.run(resource, at, id);
    },
    /** Lets the best and the oldest of those that wait for `resource` be looked at. */
    wakeNext: (resource: string): void => {
      wakeNext.run({ resource, workspace });
    },
    /** Lets all that wait for `resource` be looked at: it is no resource to be shared out any more. */
    wakeEvery: (resource: string): void => {
      wakeEvery.run({ resource, workspace });
    },
    /** Lets all be looked at again: a limit or a policy has changed. */
    wakeAll: (): void => {
      wakeAll.run(workspace);
    },
    /** Lets it be looked at again: what it waits for is satisfied. From now on it may starve. */
    openAfter: (id: string): void => {
      openAfter.run(id);
    },
    /** It was claimed: nothing it waited for counts any more. */
    clear: (id: string): void => {
      clear.run(id);
    },
    delay: (id: string, until: string): void => {
      delay.run(until, id);
    },
    /** When the earliest delayed unit may start, null when none is delayed. */
    nextDue: (now: string): string | null => nextDue.get({ workspace, now })?.at ?? null,
    waitingFor: (id: string) => waiting.get(id) ?? null,
    counts: (): { queued: number; blocked: number } =>
      counts.get(workspace) ?? { queued: 0, blocked: 0 },
  };
}
