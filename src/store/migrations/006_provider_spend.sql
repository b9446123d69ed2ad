-- The health of model providers, and what work has cost. Money is whole micro-dollars.

-- Attempts in a row that a provider failed, and when the first of them ended.
ALTER TABLE work_units ADD COLUMN provider_failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE work_units ADD COLUMN provider_failing_since TEXT;

-- Added up from the messages of all attempts, in the transaction that stores each message.
ALTER TABLE work_units ADD COLUMN spent_micro_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE work_units ADD COLUMN spent_tokens INTEGER NOT NULL DEFAULT 0;
-- Tokens of models without a price: their cost is not known.
ALTER TABLE work_units ADD COLUMN unpriced_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE work_unit_attempts ADD COLUMN spent_micro_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE work_unit_attempts ADD COLUMN spent_tokens INTEGER NOT NULL DEFAULT 0;

-- Ceilings of a channel for one day; null for none.
ALTER TABLE channels ADD COLUMN day_micro_usd INTEGER;
ALTER TABLE channels ADD COLUMN day_tokens INTEGER;

-- One row per provider (or preset) that ever failed.
CREATE TABLE provider_health (
  workspace_id TEXT NOT NULL,
  provider TEXT NOT NULL,
  -- closed: work is started; open: not before open_until; half_open: one run at a time, the probe.
  state TEXT NOT NULL,
  failures INTEGER NOT NULL,
  -- Pauses in a row: each is longer than the one before.
  openings INTEGER NOT NULL,
  open_until TEXT,
  code TEXT,
  message TEXT,
  probe_attempt_id TEXT,
  updated_at TEXT NOT NULL,
  PRIMARY KEY (workspace_id, provider)
) STRICT, WITHOUT ROWID;

-- What was spent on a local calendar day, by channel; '' for work without one.
CREATE TABLE spend_by_day (
  workspace_id TEXT NOT NULL,
  day TEXT NOT NULL,
  channel_id TEXT NOT NULL,
  micro_usd INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  unpriced_tokens INTEGER NOT NULL,
  PRIMARY KEY (workspace_id, day, channel_id)
) STRICT, WITHOUT ROWID;
