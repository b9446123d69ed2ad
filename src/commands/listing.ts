/** How commands print a list: a table for people, one JSON object for programs. */
import { EXIT } from '../domain/errors.ts';
import type { Context } from './context.ts';
import { formatDuration } from './duration.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

export interface JsonOption {
  readonly json?: boolean;
}

export interface Listing<Item> {
  readonly header: readonly string[];
  readonly row: (item: Item) => readonly string[];
  /** Said on stderr when there is nothing. */
  readonly none: string;
}

/** Prints a page as it came, or as a table. */
export async function printList<Item>(
  { stdout, stderr }: Context,
  page: { readonly items: readonly Item[]; readonly nextCursor: string | null },
  { json }: JsonOption,
  { header, row, none }: Listing<Item>,
): Promise<number> {
  if (json) {
    await stdout.json(page);
    return EXIT.ok;
  }
  if (page.items.length === 0) {
    await stderr.line(none);
    return EXIT.ok;
  }
  const rows = page.items.map((item) => row(item).map(sanitizeLine));
  for (const line of table([header, ...rows])) await stdout.line(line);
  return EXIT.ok;
}

/** An age in words, `-` for what never happened. */
export const ageText = (ms: number | null): string => (ms === null ? '-' : formatDuration(ms));

export const JSON_LIST = 'as {"items":[…],"nextCursor":…}';
