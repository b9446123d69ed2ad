/** Columns of text, padded by the cells they take on a terminal. */

// East Asian wide and emoji presentation take two cells, combining marks none.
const WIDE =
  /[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]/u;
const MARK = /[\p{Mark}\u200d]/u;

function cellsOf(character: string): number {
  if (MARK.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

/** How many cells a line takes. Control characters must be gone already. */
export function width(text: string): number {
  let cells = 0;
  for (const character of text) cells += cellsOf(character);
  return cells;
}

/** The text itself, or its start with `…`, in at most `cells` cells. */
export function truncate(text: string, cells: number): string {
  if (width(text) <= cells) return text;
  let kept = '';
  let used = 0;
  for (const character of text) {
    used += cellsOf(character);
    if (used > cells - 1) break;
    kept += character;
  }
  return cells > 0 ? `${kept}…` : '';
}

/** Rows as lines, columns two spaces apart, nothing after the last cell. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, width(cell));
    });
  }
  return rows.map((row) =>
    row
      .map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - width(cell)))
      .join('  ')
      .trimEnd(),
  );
}
