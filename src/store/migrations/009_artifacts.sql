-- Files of an attempt that people may read. They lie in its directory and go with it.

CREATE TABLE artifacts (
  id TEXT PRIMARY KEY,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  attempt_id TEXT NOT NULL REFERENCES work_unit_attempts(id),
  kind TEXT NOT NULL,
  -- In the attempt's directory.
  file_name TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  -- 1: a bound was reached, so this is not all there was.
  truncated INTEGER NOT NULL,
  -- Hex, of the file as it was when the attempt ended.
  sha256 TEXT NOT NULL,
  created_at TEXT NOT NULL,
  UNIQUE (attempt_id, kind)
) STRICT;

CREATE INDEX idx_artifact_work_unit ON artifacts(work_unit_id);
