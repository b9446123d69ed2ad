/** Statements about the files of ended attempts that people may read. */
import type { Database } from 'better-sqlite3';
import { z } from 'zod';
import { ARTIFACT_KINDS } from '../domain/artifacts.ts';

const rowSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  attemptId: z.string(),
  attemptNumber: z.int(),
  kind: z.enum(ARTIFACT_KINDS),
  fileName: z.string(),
  bytes: z.int(),
  truncated: z.int().transform((value) => value === 1),
  sha256: z.string(),
  createdAt: z.string(),
});
export type ArtifactRow = z.output<typeof rowSchema>;
export type NewArtifact = Omit<ArtifactRow, 'attemptNumber'>;

export type Artifacts = ReturnType<typeof artifactStatements>;

const SELECT = `SELECT artifact.id, artifact.work_unit_id AS workUnitId,
    artifact.attempt_id AS attemptId, attempt.attempt_number AS attemptNumber, kind,
    file_name AS fileName, bytes, truncated, sha256, artifact.created_at AS createdAt
  FROM artifacts AS artifact
  JOIN work_unit_attempts AS attempt ON attempt.id = artifact.attempt_id`;

export function artifactStatements(db: Database) {
  const insert = db.prepare<Omit<NewArtifact, 'truncated'> & { truncated: number }>(
    `INSERT INTO artifacts (id, work_unit_id, attempt_id, kind, file_name, bytes, truncated,
       sha256, created_at)
     VALUES (@id, @workUnitId, @attemptId, @kind, @fileName, @bytes, @truncated, @sha256,
       @createdAt)`,
  );
  const byId = db.prepare<[string]>(`${SELECT} WHERE artifact.id = ?`);
  const byWorkUnit = db.prepare<[string]>(
    `${SELECT} WHERE artifact.work_unit_id = ? ORDER BY attempt_number, instr('${ARTIFACT_KINDS.join(' ')}', kind)`,
  );
  return {
    insert: (row: NewArtifact): void => {
      insert.run({ ...row, truncated: row.truncated ? 1 : 0 });
    },
    get: (id: string): ArtifactRow | null => {
      const row = byId.get(id);
      return row === undefined ? null : rowSchema.parse(row);
    },
    /** Oldest attempt first, its kinds as ARTIFACT_KINDS has them. */
    listByWorkUnit: (workUnitId: string): ArtifactRow[] =>
      byWorkUnit.all(workUnitId).map((row) => rowSchema.parse(row)),
  };
}
