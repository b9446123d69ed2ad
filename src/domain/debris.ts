/** What work left behind in a repository, as one of four words. Pure. */

/** The classes, each with the sentence a person reads. Only `empty` may be removed. */
export const DEBRIS_CLASSES = {
  absent: 'There is no such branch',
  empty: 'The branch has no commit beyond its base, and nothing is changed',
  publishable: 'The branch has commits beyond its base, and nothing is changed',
  'half-done': 'Something was begun and not finished; only a person can say what it is worth',
} as const;
export type DebrisClass = keyof typeof DEBRIS_CLASSES;

export interface DebrisFacts {
  readonly exists: boolean;
  /** Commits that the base has not; 0 where there is no branch. */
  readonly commits: number;
  /** Why it is in the middle of something: changed files, a merge, a detached HEAD, a stash; null when it is not. */
  readonly unfinished: string | null;
}

/** Unfinished comes first: a branch that is gone proves nothing about the files that were its. */
export function debrisClass({ exists, commits, unfinished }: DebrisFacts): DebrisClass {
  if (unfinished !== null) return 'half-done';
  if (!exists) return 'absent';
  return commits === 0 ? 'empty' : 'publishable';
}
