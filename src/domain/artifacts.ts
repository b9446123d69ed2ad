/** The files of an attempt that are kept for people to read. */
import { ATTEMPT_FILES } from './attempt-files.ts';

export const ARTIFACT_KINDS = ['stdout', 'stderr', 'transcript', 'diff'] as const;
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number];

/** Their names in the attempt directory. */
export const ARTIFACT_FILES: Readonly<Record<ArtifactKind, string>> = {
  stdout: ATTEMPT_FILES.stdout,
  stderr: ATTEMPT_FILES.stderr,
  transcript: ATTEMPT_FILES.transcript,
  diff: ATTEMPT_FILES.diff,
};

/**
 * Above what the wrapper ever makes: captureBytes is at most 1 GiB, and a note of what was
 * cut comes on top. A larger file was made by somebody else.
 */
export const ARTIFACT_MAX_BYTES = 1024 ** 3 + 64 * 1024;
