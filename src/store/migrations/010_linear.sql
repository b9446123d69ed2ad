-- The Linear agent: what came in, sessions, turns, and what is to be told.

-- The ledger of webhooks. Content decides what is the same, not how it was delivered.
CREATE TABLE linear_deliveries (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  content_key TEXT NOT NULL,
  -- Of the first one that came; a column, never a key.
  delivery_id TEXT,
  type TEXT NOT NULL,
  action TEXT NOT NULL,
  organization_id TEXT,
  session_id TEXT,
  source TEXT NOT NULL CHECK (source IN ('webhook', 'sweep')),
  received_at TEXT NOT NULL,
  signed_at TEXT,
  body BLOB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('new', 'processed', 'ignored', 'failed')),
  processed_at TEXT,
  detail TEXT,
  repeats INTEGER NOT NULL DEFAULT 0,
  UNIQUE (workspace_id, content_key)
) STRICT;
CREATE INDEX idx_linear_deliveries_new ON linear_deliveries(workspace_id, id) WHERE state = 'new';

CREATE TABLE linear_sessions (
  -- Linear's own id of the agent session; the thread.
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  organization_id TEXT NOT NULL,
  -- The issue's UUID; the session's own id where it has none.
  channel_key TEXT NOT NULL,
  issue_id TEXT,
  identifier TEXT,
  title TEXT,
  url TEXT,
  team_id TEXT,
  creator_id TEXT,
  -- 1: `created` was seen; 0: only a prompt so far, which is held.
  known INTEGER NOT NULL,
  -- Made by ourselves: never starts work.
  own INTEGER NOT NULL DEFAULT 0,
  -- A stop was seen: nothing starts for it before the next prompt.
  stopped_at TEXT,
  work_tree TEXT,
  first_activity_at TEXT,
  last_activity_at TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL
) STRICT;
CREATE INDEX idx_linear_sessions_channel ON linear_sessions(workspace_id, channel_key);

CREATE TABLE linear_turns (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES linear_sessions(id) ON DELETE CASCADE,
  channel_key TEXT NOT NULL,
  -- What it was made of; the same source never makes two.
  source_key TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('created', 'prompted', 'continuation')),
  state TEXT NOT NULL CHECK (state IN
    ('held', 'pending', 'running', 'awaiting_activity', 'done', 'failed', 'interrupted', 'stopped')),
  prompt TEXT NOT NULL,
  work_unit_id TEXT,
  -- The turn that took its place.
  interrupted_by TEXT,
  -- 1: somebody stopped it while it ran; nothing takes its place or goes on with it.
  stopped INTEGER NOT NULL DEFAULT 0,
  -- When a person said it, by Linear's clock; null where nobody did, or Linear does not say.
  said_at TEXT,
  -- Its one terminal activity, in the outbox.
  terminal_id TEXT,
  created_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  UNIQUE (workspace_id, source_key)
) STRICT;
CREATE INDEX idx_linear_turns_open ON linear_turns(workspace_id, channel_key)
  WHERE state IN ('held', 'pending', 'running', 'awaiting_activity');
CREATE INDEX idx_linear_turns_session ON linear_turns(session_id);
CREATE INDEX idx_linear_turns_work ON linear_turns(work_unit_id) WHERE work_unit_id IS NOT NULL;

-- What is to be told, in order, each with the id that makes a second post the same one.
CREATE TABLE linear_outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  -- UUID v4, made before the first try; for an activity the id that Linear is given.
  id TEXT NOT NULL UNIQUE,
  workspace_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  turn_id TEXT,
  kind TEXT NOT NULL CHECK (kind IN ('activity', 'session', 'issue')),
  ephemeral INTEGER NOT NULL DEFAULT 0,
  terminal INTEGER NOT NULL DEFAULT 0,
  -- 0 first: what a person waits for; then progress.
  priority INTEGER NOT NULL,
  body_json TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed', 'expired', 'dropped')),
  tries INTEGER NOT NULL DEFAULT 0,
  not_before TEXT,
  expires_at TEXT NOT NULL,
  created_at TEXT NOT NULL,
  sent_at TEXT,
  error_code TEXT,
  error_message TEXT
) STRICT;
CREATE INDEX idx_linear_outbox_pending ON linear_outbox(workspace_id, priority, seq)
  WHERE state = 'pending';
CREATE INDEX idx_linear_outbox_turn ON linear_outbox(turn_id)
  WHERE state = 'pending' AND turn_id IS NOT NULL;
CREATE INDEX idx_linear_outbox_session ON linear_outbox(session_id, seq);

-- Small facts that outlive the daemon: the app's user, the sweep's cursor, the auth problem.
CREATE TABLE linear_facts (
  workspace_id TEXT NOT NULL,
  name TEXT NOT NULL,
  value_json TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;

-- A conversation that several work units go on with, one after the other; its own when null.
ALTER TABLE work_units ADD COLUMN conversation TEXT;
ALTER TABLE work_unit_attempts ADD COLUMN conversation TEXT;
CREATE INDEX idx_work_units_conversation ON work_units(conversation) WHERE conversation IS NOT NULL;
