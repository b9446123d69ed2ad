-- Starts that ran nothing: what systemd said against one, and since when a work unit backs off.

-- {kind, reason}: why a start came to nothing, as far as it was told.
ALTER TABLE work_unit_attempts ADD COLUMN start_problem_json TEXT;
-- When the newest of never_started_count was; with time they are forgiven.
ALTER TABLE work_units ADD COLUMN never_started_at TEXT;
