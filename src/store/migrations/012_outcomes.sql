-- What success must leave behind, and what work waits for.

-- One row for each end of a work unit that declared an outcome; a retry ends with a row of its own.
CREATE TABLE outcomes (
  work_unit_id TEXT NOT NULL REFERENCES work_units(id) ON DELETE CASCADE,
  -- Of work_units.attempt_count at that end; 0 where nothing ever ran.
  attempt_number INTEGER NOT NULL,
  attempt_id TEXT,
  state TEXT NOT NULL
    CHECK (state IN ('pending', 'satisfied', 'blocked', 'refuted', 'skipped')),
  -- Why, in a word and in a sentence; null while pending and when satisfied.
  code TEXT,
  message TEXT,
  -- The work unit that verifies, once there is one.
  verify_id TEXT,
  -- The JSON that the runner returned and that its schema accepted.
  result_json TEXT,
  created_at TEXT NOT NULL,
  settled_at TEXT,
  PRIMARY KEY (work_unit_id, attempt_number)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_outcome_pending ON outcomes(created_at) WHERE state = 'pending';
CREATE INDEX idx_outcome_verify ON outcomes(verify_id) WHERE verify_id IS NOT NULL;

-- Work that must have had its outcome before other work begins.
CREATE TABLE work_unit_dependencies (
  work_unit_id TEXT NOT NULL REFERENCES work_units(id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  depends_on_id TEXT NOT NULL,
  PRIMARY KEY (work_unit_id, position),
  UNIQUE (work_unit_id, depends_on_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_dependency_of ON work_unit_dependencies(depends_on_id);

-- How many of them have to be satisfied; null where there are none.
ALTER TABLE work_units ADD COLUMN after_needed INTEGER;

-- The ledger: attempts in the order of their ends.
CREATE INDEX idx_attempt_ended ON work_unit_attempts(ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX idx_work_unit_driver ON work_units(workspace_id, owner_id) WHERE owner_type = 'driver';
