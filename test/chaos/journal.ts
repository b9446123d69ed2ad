/** The journal that work.sh writes: what really ran, whatever the store says. */
import { existsSync, readFileSync } from 'node:fs';

export const JOURNAL_WORDS = ['begin', 'end', 'two_of_one_key', 'two_on_one_lease'] as const;
export type JournalWord = (typeof JOURNAL_WORDS)[number];

export interface JournalLine {
  readonly word: JournalWord;
  readonly key: string;
  readonly unit: string;
  readonly pid: number;
}

/** Whole lines only: the last one may be half of one. */
export function parseJournal(text: string): JournalLine[] {
  return text
    .split('\n')
    .slice(0, -1)
    .flatMap((line) => {
      const [word = '', key = '', unit = '', pid = ''] = line.split(' ');
      const known = JOURNAL_WORDS.find((candidate) => candidate === word);
      return known ? [{ word: known, key, unit, pid: Number(pid) }] : [];
    });
}

export function readJournal(file: string): JournalLine[] {
  return existsSync(file) ? parseJournal(readFileSync(file, 'utf8')) : [];
}

/** What has begun and not said that it ended, oldest first. */
export function underWay(lines: readonly JournalLine[]): JournalLine[] {
  const ended = new Set(lines.flatMap(({ word, unit }) => (word === 'end' ? [unit] : [])));
  return lines.filter(({ word, unit }) => word === 'begin' && !ended.has(unit));
}
