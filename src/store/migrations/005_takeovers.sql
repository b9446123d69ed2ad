-- Who took the workspace over from a daemon that died, and how that was known.

CREATE TABLE runtime_takeovers (
  previous_instance_id TEXT PRIMARY KEY,
  previous_pid INTEGER NOT NULL,
  previous_started_at TEXT NOT NULL,
  previous_version TEXT NOT NULL,
  runtime_instance_id TEXT NOT NULL REFERENCES runtime_instances(id),
  evidence TEXT NOT NULL,
  at TEXT NOT NULL
) STRICT;
