/** Shapes of what attempts left for people to read. */
import { z } from 'zod';
import { ARTIFACT_KINDS } from '../domain/artifacts.ts';
import { page } from './schemas.ts';

export const artifactViewSchema = z.object({
  id: z.string(),
  workUnitId: z.string(),
  attemptId: z.string(),
  attemptNumber: z.int(),
  kind: z.enum(ARTIFACT_KINDS),
  fileName: z.string(),
  bytes: z.int(),
  /** A bound was reached: this is not all there was. */
  truncated: z.boolean(),
  /** Hex, of the content. */
  sha256: z.string(),
  createdAt: z.iso.datetime(),
});
export type ArtifactView = z.infer<typeof artifactViewSchema>;

/** Of all attempts of a work unit, oldest first; nextCursor is always null. */
export const artifactPageSchema = page(artifactViewSchema);
export type ArtifactPage = z.infer<typeof artifactPageSchema>;

export const artifactParamsSchema = z.strictObject({ id: z.string().min(1).max(128) });
