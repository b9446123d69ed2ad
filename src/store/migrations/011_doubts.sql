-- Lines of the spool were lost while an approved call might have begun: nobody can know.
-- A fact of its own and no comparison of times, since clocks go back with a power cut.
ALTER TABLE approvals ADD COLUMN doubted INTEGER NOT NULL DEFAULT 0;
-- The spool is gone, or shorter than what was read of it: what is written from then on is not seen.
ALTER TABLE work_unit_attempts ADD COLUMN spool_cut INTEGER NOT NULL DEFAULT 0;
-- It told the time of a damage; the events of the damage do, and no decision is made by it any more.
ALTER TABLE work_unit_attempts DROP COLUMN spool_damaged_at;
