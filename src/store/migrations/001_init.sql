-- Work units, attempts, events, heartbeats. Times are RFC 3339 UTC text, durations milliseconds.

CREATE TABLE work_units (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  handle TEXT NOT NULL,
  kind TEXT NOT NULL,
  owner_type TEXT NOT NULL,
  owner_id TEXT NOT NULL,
  channel_id TEXT,
  task_id TEXT,
  teammate_id TEXT,
  provider_preset_id TEXT,
  runner_id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  status TEXT NOT NULL,
  priority INTEGER NOT NULL,
  attempt_count INTEGER NOT NULL DEFAULT 0,
  active_attempt_id TEXT,
  created_by_client_id TEXT,
  created_by_actor TEXT NOT NULL,
  -- The request after defaults, as canonical JSON: what an idempotency key is compared by.
  request_json TEXT NOT NULL,
  timeout_policy_json TEXT NOT NULL,
  cwd TEXT NOT NULL,
  model TEXT,
  -- Starts in a row that ran nothing; bounds how often a broken start is tried again.
  never_started_count INTEGER NOT NULL DEFAULT 0,
  last_seq INTEGER NOT NULL DEFAULT 0,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  last_event_at TEXT,
  last_heartbeat_at TEXT,
  error_code TEXT,
  error_message TEXT
) STRICT;

CREATE UNIQUE INDEX idx_work_unit_idempotency
  ON work_units(workspace_id, kind, owner_type, owner_id, idempotency_key);
CREATE INDEX idx_work_unit_status
  ON work_units(workspace_id, status, priority DESC, created_at);
CREATE INDEX idx_work_unit_handle ON work_units(workspace_id, handle, created_at);
CREATE UNIQUE INDEX idx_work_unit_live_handle
  ON work_units(workspace_id, handle)
  WHERE status NOT IN ('succeeded', 'failed', 'cancelled');

CREATE TABLE work_unit_attempts (
  id TEXT PRIMARY KEY,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  attempt_number INTEGER NOT NULL,
  runtime_instance_id TEXT NOT NULL,
  runner_id TEXT NOT NULL,
  provider_preset_id TEXT,
  status TEXT NOT NULL,
  unit TEXT NOT NULL UNIQUE,
  -- The identity that exists before the start.
  nonce TEXT NOT NULL UNIQUE,
  executor TEXT NOT NULL,
  -- Known only after a fresh read of the started unit.
  invocation_id TEXT,
  control_group TEXT,
  boot_id TEXT,
  manager_json TEXT,
  reattached INTEGER NOT NULL DEFAULT 0,
  -- Ingest: bytes of the spool whose lines are in runtime_events, and how many lines that were.
  spool_offset INTEGER NOT NULL DEFAULT 0,
  spool_lines INTEGER NOT NULL DEFAULT 0,
  opened_json TEXT,
  said_deadline INTEGER NOT NULL DEFAULT 0,
  told_to_stop INTEGER NOT NULL DEFAULT 0,
  last_word_json TEXT,
  -- A decision about its end, stored before the process is touched.
  intent_json TEXT,
  exit_json TEXT,
  evidence_json TEXT,
  decided_by_rule INTEGER,
  created_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  last_event_at TEXT,
  last_heartbeat_at TEXT,
  abort_requested_at TEXT,
  error_code TEXT,
  error_message TEXT
) STRICT;

CREATE UNIQUE INDEX idx_work_unit_attempt_number
  ON work_unit_attempts(work_unit_id, attempt_number);
CREATE INDEX idx_attempt_status ON work_unit_attempts(status);

-- The event's public id is "<work unit id>:<seq>"; position orders the whole workspace.
CREATE TABLE runtime_events (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  attempt_id TEXT,
  seq INTEGER NOT NULL,
  ts TEXT NOT NULL,
  type TEXT NOT NULL,
  actor TEXT NOT NULL,
  data_json TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX idx_runtime_event_seq ON runtime_events(work_unit_id, seq);

-- One row per attempt and source, renewed in place: a heartbeat is a state, not a history.
CREATE TABLE runtime_heartbeats (
  id TEXT PRIMARY KEY,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id),
  attempt_id TEXT NOT NULL REFERENCES work_unit_attempts(id),
  runtime_instance_id TEXT NOT NULL,
  ts TEXT NOT NULL,
  source TEXT NOT NULL,
  detail_json TEXT,
  UNIQUE (attempt_id, source)
) STRICT;

CREATE INDEX idx_runtime_heartbeat_attempt ON runtime_heartbeats(attempt_id, ts);

-- The counter in unit names: per handle, and it only grows.
CREATE TABLE unit_counters (
  workspace_id TEXT NOT NULL,
  handle TEXT NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, handle)
) STRICT;

-- Each start of a daemon, newest last: an audit of who owned the workspace.
CREATE TABLE runtime_instances (
  id TEXT PRIMARY KEY,
  pid INTEGER NOT NULL,
  version TEXT NOT NULL,
  started_at TEXT NOT NULL,
  report_json TEXT
) STRICT;
