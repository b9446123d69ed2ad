/** Tells when a spool grew: inotify on its directory. A hint only; the reader looks itself. */
import { watch } from 'node:fs';
import { ATTEMPT_FILES } from '../domain/attempt-files.ts';

/** @returns the end of watching. A directory that cannot be watched is reported and not watched. */
export function watchSpool(
  directory: string,
  onGrowth: () => void,
  onProblem: (error: unknown) => void,
): () => void {
  try {
    const watcher = watch(directory, (_event, name) => {
      if (name === ATTEMPT_FILES.spool) onGrowth();
    });
    watcher.on('error', onProblem);
    return () => watcher.close();
  } catch (error) {
    onProblem(error);
    return () => undefined;
  }
}
