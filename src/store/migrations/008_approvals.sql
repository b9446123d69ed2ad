-- Questions to a person before a side effect, and what became of the answers.

-- One row per question: the request, the decision, and the checkpoint from which work goes
-- on should the attempt that asked be gone by then.
CREATE TABLE approvals (
  id TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  work_unit_id TEXT NOT NULL REFERENCES work_units(id) ON DELETE CASCADE,
  -- Who asked.
  attempt_id TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  tool TEXT NOT NULL,
  -- As spooled, so redacted and cut; what was really asked for is the fingerprint.
  arguments_json TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  cwd TEXT NOT NULL,
  diff TEXT,
  -- Of the rule that asks.
  reason TEXT,
  status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'dropped')),
  requested_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  decided_at TEXT,
  decided_by TEXT,
  decision_reason TEXT,
  checkpoint TEXT NOT NULL
    CHECK (checkpoint IN ('waiting', 'resume_pending', 'resumed', 'resume_failed', 'closed')),
  -- Rises with every change of the row: what a writer compares.
  revision INTEGER NOT NULL,
  -- The attempt that may act on the decision in place of the one that asked.
  bound_attempt_id TEXT,
  -- Where the call was begun, by whom, and whether its end was seen.
  start_attempt_id TEXT,
  start_call_id TEXT,
  ended INTEGER NOT NULL DEFAULT 0,
  failure_code TEXT,
  updated_at TEXT NOT NULL,
  UNIQUE (attempt_id, tool_call_id)
) STRICT;
CREATE INDEX idx_approvals_work_unit ON approvals(work_unit_id);
CREATE INDEX idx_approvals_open ON approvals(workspace_id, expires_at) WHERE status = 'pending';
CREATE INDEX idx_approvals_resume ON approvals(workspace_id)
  WHERE checkpoint IN ('waiting', 'resume_pending');

-- Signs decisions; made at the first start. The wrapper is given the public half only.
CREATE TABLE signing_keys (
  workspace_id TEXT PRIMARY KEY,
  private_der BLOB NOT NULL,
  public_der BLOB NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

-- What is left of the hard timeout after a suspension, for the next attempt.
ALTER TABLE work_units ADD COLUMN hard_left_ms INTEGER;
ALTER TABLE work_unit_attempts ADD COLUMN hard_timeout_ms INTEGER;
-- Time spent waiting for a person, and since when it waits now.
ALTER TABLE work_unit_attempts ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE work_unit_attempts ADD COLUMN waiting_since TEXT;
-- When lines of the spool were found to be missing, cut off or unreadable.
ALTER TABLE work_unit_attempts ADD COLUMN spool_damaged_at TEXT;
