-- Drivers: who looks for work, when next, and what came of it.
CREATE TABLE drivers (
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('cli', 'file')),
  -- A removed one stays as a row: its tick numbers must not come again.
  state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'removed')),
  spec_json TEXT NOT NULL,
  revision INTEGER NOT NULL,
  -- Of the tick that began last; it only grows.
  tick INTEGER NOT NULL DEFAULT 0,
  -- The census of the tick that is under way, and when that began; null between two ticks.
  census_id TEXT,
  tick_at TEXT,
  next_at TEXT,
  -- Ticks in a row that failed.
  failures INTEGER NOT NULL DEFAULT 0,
  -- What came of the last tick that ended.
  report_json TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_driver_census ON drivers(census_id) WHERE census_id IS NOT NULL;

-- Subjects that no driver works on until somebody says so, written with the end of what was stopped.
CREATE TABLE driver_holds (
  workspace_id TEXT NOT NULL,
  subject TEXT NOT NULL,
  driver TEXT NOT NULL,
  -- The work that was stopped; null where none was.
  work_unit_id TEXT,
  code TEXT NOT NULL,
  held_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, subject)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_work_unit_driver_live ON work_units(workspace_id, owner_id)
  WHERE owner_type = 'driver' AND status NOT IN ('succeeded', 'failed', 'cancelled');
-- What decides whether a subject may be worked on costs the same however often it was.
CREATE INDEX idx_work_unit_subject_newest ON work_units(workspace_id, external_subject, id)
  WHERE external_subject IS NOT NULL;
CREATE INDEX idx_work_unit_subject_live ON work_units(workspace_id, external_subject)
  WHERE external_subject IS NOT NULL AND status NOT IN ('succeeded', 'failed', 'cancelled');
