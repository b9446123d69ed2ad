-- Going on after a loss: what the next attempt is told, and which lost attempt it goes on from.

-- The note of the last loss (domain/resume.ts), null once an attempt that had it has ended.
ALTER TABLE work_units ADD COLUMN resume_json TEXT;
ALTER TABLE work_unit_attempts ADD COLUMN resumes_attempt_id TEXT;
CREATE INDEX idx_attempt_resumes ON work_unit_attempts(resumes_attempt_id)
  WHERE resumes_attempt_id IS NOT NULL;
