/** The branch of an issue. */
import type { LinearRepository } from '../domain/linear-repositories.ts';

const LONGEST = 200;

/** The nearest name that git-check-ref-format(1) lets through; null where nothing is left. */
export function validBranch(name: string): string | null {
  const parts = name
    .normalize('NFC')
    .replaceAll(/[\p{Cc}\s~^:?*[\\]+|@\{|\.{2,}/gu, '-')
    .split('/')
    .map((part) => part.replaceAll(/^[.-]+|[.-]+$/g, '').replace(/(?:\.lock)+$/, ''))
    .filter((part) => part !== '' && part !== '@');
  const whole = parts.join('/').slice(0, LONGEST);
  const trimmed = whole.replace(/(?:[/.-]|\.lock)+$/, '');
  return trimmed === '' || trimmed === 'HEAD' ? null : trimmed;
}

export interface BranchedIssue {
  /** Of the issue, or of the session where there is none; never changes. */
  readonly key: string;
  readonly identifier: string | null;
  /** As Linear proposes. */
  readonly branchName: string | null;
}

/** What the branch of an issue is to be called: by the prefix where one is configured, else as Linear says. */
export function branchOf(
  { key, identifier, branchName }: BranchedIssue,
  { branchPrefix }: Pick<LinearRepository, 'branchPrefix'>,
): string {
  const name = (identifier ?? key).toLowerCase();
  const wanted = branchPrefix === undefined ? branchName : `${branchPrefix}${name}`;
  return validBranch(wanted ?? '') ?? validBranch(`outlive/${name}`) ?? 'outlive/work';
}
