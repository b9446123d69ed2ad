/** What the API says of upkeep: retention and backups. */
import { z } from 'zod';

const count = z.int().min(0);
const tally = z.object({
  files: count,
  /** As they lie on the disk. */
  bytes: count,
});

export const collectSchema = z.strictObject({
  /** Only tells what would go. */
  dryRun: z.boolean().default(false),
  /** In the place of the configured age, milliseconds. */
  olderThanMs: z.int().min(0).max(315_360_000_000).optional(),
});
export type CollectInput = z.input<typeof collectSchema>;

export const collectViewSchema = z.object({
  dryRun: z.boolean(),
  /** Work that ended at or before this was too old; null when nothing ever is. */
  cutoff: z.iso.datetime().nullable(),
  /** Work units compacted for their age, and for the disk budget. */
  workUnits: z.object({ age: count, budget: count }),
  events: count,
  files: tally,
  /** Keys of commands and earlier starts of the daemon. */
  otherRows: count,
  /** Files of nobody the store knows. */
  unclaimed: z.object({
    found: count,
    removed: count,
    files: tally,
    /** The first of those that stay. */
    paths: z.array(z.string()),
  }),
  /** After the run; of a dry run as it would be. */
  usage: z.object({
    fileBytes: count,
    storeBytes: count,
    budgetBytes: count.nullable(),
    /** What live and just ended work alone has above the budget. */
    excessBytes: count,
  }),
  problems: z.array(z.string()),
});
export type CollectView = z.infer<typeof collectViewSchema>;

export const backupSchema = z.strictObject({
  /** Absolute, on the daemon's machine. */
  path: z.string().min(1).max(4096),
  /** Replaces a file that is there. */
  force: z.boolean().default(false),
});
export type BackupInput = z.input<typeof backupSchema>;

/** All figures are read from the copy. */
export const backupViewSchema = z.object({
  file: z.string(),
  bytes: count,
  schemaVersion: count,
  workspaceId: z.string().nullable(),
  workUnits: count,
  liveWorkUnits: count,
  attempts: count,
  events: count,
  /** Position of its newest event. */
  position: count,
});
export type BackupView = z.infer<typeof backupViewSchema>;
