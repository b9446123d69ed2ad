-- What was let go, and below which numbers events cannot be replayed any more.

-- One row about the store as a whole.
CREATE TABLE store_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  -- Whose store it is; written by the first daemon that opens it.
  workspace_id TEXT,
  -- Another one after every restore: a number of an earlier epoch may name another event.
  epoch TEXT NOT NULL,
  -- The highest position that was ever removed. A reader below it may have missed something.
  floor_position INTEGER NOT NULL
) STRICT;

INSERT INTO store_state (id, epoch, floor_position) VALUES (1, lower(hex(randomblob(16))), 0);

-- The highest seq of a work unit that was removed; with last_seq above it there is something to keep.
ALTER TABLE work_units ADD COLUMN floor_seq INTEGER NOT NULL DEFAULT 0;
-- When the attempt's files, heartbeats and released resources were removed.
ALTER TABLE work_unit_attempts ADD COLUMN compacted_at TEXT;

CREATE INDEX idx_work_unit_compactable ON work_units(ended_at, id)
  WHERE status IN ('succeeded', 'failed', 'cancelled') AND last_seq > floor_seq;

-- Intent: nothing of a work unit is removed before it stands here, and it stands here until all is gone.
CREATE TABLE compactions (
  work_unit_id TEXT PRIMARY KEY REFERENCES work_units(id),
  -- Later attempts (of a retry) are not meant.
  last_attempt INTEGER NOT NULL,
  reason TEXT NOT NULL,
  at TEXT NOT NULL
) STRICT;

CREATE INDEX idx_idempotent_command_age ON idempotent_commands(created_at);
CREATE INDEX idx_lease_work_unit ON resource_leases(work_unit_id);
CREATE INDEX idx_slot_work_unit ON runtime_semaphore_slots(work_unit_id);
CREATE INDEX idx_heartbeat_work_unit ON runtime_heartbeats(work_unit_id);
