-- Leases, slots, what queued work waits for, and what the whole workspace is told to do.

ALTER TABLE work_units ADD COLUMN on_conflict TEXT NOT NULL DEFAULT 'queue';
ALTER TABLE work_units ADD COLUMN external_subject TEXT;
-- Earliest start: a backoff after a provider's failure or after starts that ran nothing.
ALTER TABLE work_units ADD COLUMN not_before TEXT;
-- The resource this queued unit was last found to wait for; null when it has to be looked at.
ALTER TABLE work_units ADD COLUMN blocked_on TEXT;
ALTER TABLE work_units ADD COLUMN blocked_since TEXT;
-- The resource whose release let it be looked at again: passed on when it cannot use it.
ALTER TABLE work_units ADD COLUMN woken_by TEXT;

CREATE INDEX idx_work_unit_blocked ON work_units(blocked_on, priority DESC, created_at)
  WHERE status = 'queued';
CREATE INDEX idx_work_unit_queue ON work_units(workspace_id, blocked_on, priority DESC, created_at)
  WHERE status = 'queued';
CREATE INDEX idx_work_unit_waiting_age ON work_units(workspace_id, blocked_on, created_at)
  WHERE status = 'queued';
CREATE INDEX idx_work_unit_starving ON work_units(workspace_id, blocked_since)
  WHERE status = 'queued' AND blocked_since IS NOT NULL;
CREATE INDEX idx_work_unit_delayed ON work_units(workspace_id, not_before)
  WHERE status = 'queued' AND not_before IS NOT NULL;
CREATE INDEX idx_work_unit_subject ON work_units(workspace_id, external_subject)
  WHERE external_subject IS NOT NULL;

-- What a work unit must hold to run: leases (exclusive) and slots (counted).
CREATE TABLE work_unit_needs (
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  form TEXT NOT NULL,
  resource_type TEXT NOT NULL,
  resource_key TEXT NOT NULL,
  PRIMARY KEY (work_unit_id, form, resource_type, resource_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE resource_leases (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  resource_type TEXT NOT NULL,
  resource_key TEXT NOT NULL,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  attempt_id TEXT NOT NULL REFERENCES work_unit_attempts(id),
  status TEXT NOT NULL,
  acquired_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  last_renewed_at TEXT NOT NULL,
  released_at TEXT,
  release_reason TEXT
) STRICT;

CREATE UNIQUE INDEX idx_lease_held ON resource_leases(workspace_id, resource_type, resource_key)
  WHERE released_at IS NULL;
CREATE INDEX idx_lease_attempt ON resource_leases(attempt_id);

CREATE TABLE runtime_semaphore_slots (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  resource_type TEXT NOT NULL,
  resource_key TEXT NOT NULL,
  owner_type TEXT NOT NULL,
  owner_id TEXT NOT NULL,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  attempt_id TEXT NOT NULL REFERENCES work_unit_attempts(id),
  status TEXT NOT NULL,
  acquired_at TEXT NOT NULL,
  last_renewed_at TEXT NOT NULL,
  released_at TEXT,
  release_reason TEXT
) STRICT;

CREATE INDEX idx_slot_status
  ON runtime_semaphore_slots(workspace_id, resource_type, resource_key, status);
CREATE INDEX idx_slot_attempt ON runtime_semaphore_slots(attempt_id);

-- A lane of work with a policy of its own.
CREATE TABLE channels (
  id TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  status TEXT NOT NULL,
  max_concurrent_runs INTEGER NOT NULL,
  on_newer_subject TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, id)
) STRICT;

-- One row per setting of the whole workspace that outlives a restart: `admission` is open, paused or draining.
CREATE TABLE workspace_settings (
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, name)
) STRICT;

-- Keys of commands that were carried out: cancel, retry.
CREATE TABLE idempotent_commands (
  workspace_id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  command TEXT NOT NULL,
  work_unit_id TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, idempotency_key)
) STRICT;
