/** A unified diff of two texts. Small on purpose: people read it before they say yes. */

const CONTEXT = 3;
/** Cells of the table that finds common lines; beyond it the middle is one block. */
const MAX_CELLS = 1_000_000;

type Mark = ' ' | '-' | '+';
interface Line {
  readonly mark: Mark;
  readonly text: string;
}

/** Empty when both are equal. */
export function unifiedDiff(name: string, before: string, after: string): string {
  if (before === after) return '';
  const lines = compare(split(before), split(after));
  const hunks = hunksOf(lines).map(([from, to]) => hunk(lines, from, to));
  return `--- ${name}\n+++ ${name}\n${hunks.join('')}`;
}

/** Lines with their ends; one without an end is told apart from one with. */
const split = (text: string): string[] => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];

/** Both texts as one list. What they share at both ends needs no table. */
function compare(before: readonly string[], after: readonly string[]): Line[] {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < most - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const marked = (mark: Mark, lines: readonly string[]): Line[] =>
    lines.map((text) => ({ mark, text }));
  const [old, young] = [
    before.slice(head, before.length - tail),
    after.slice(head, after.length - tail),
  ];
  const middle =
    old.length * young.length > MAX_CELLS
      ? [...marked('-', old), ...marked('+', young)]
      : common(old, young);
  return [
    ...marked(' ', before.slice(0, head)),
    ...middle,
    ...marked(' ', before.slice(before.length - tail)),
  ];
}

/** By the longest common subsequence. */
function common(old: readonly string[], young: readonly string[]): Line[] {
  const width = young.length + 1;
  const best = new Uint32Array((old.length + 1) * width);
  const at = (i: number, j: number): number => best[i * width + j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = young.length - 1; j >= 0; j--) {
      best[i * width + j] =
        old[i] === young[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  for (let i = 0, j = 0; i < old.length || j < young.length; ) {
    const [gone, come] = [old[i], young[j]];
    if (gone !== undefined && gone === come) {
      lines.push({ mark: ' ', text: gone });
      i += 1;
      j += 1;
    } else if (gone !== undefined && (come === undefined || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ mark: '-', text: gone });
      i += 1;
    } else {
      lines.push({ mark: '+', text: come ?? '' });
      j += 1;
    }
  }
  return lines;
}

/** Ranges of lines with their surroundings; those that touch are one. */
function hunksOf(lines: readonly Line[]): [number, number][] {
  const ranges: [number, number][] = [];
  for (const [index, { mark }] of lines.entries()) {
    if (mark === ' ') continue;
    const from = Math.max(0, index - CONTEXT);
    const to = Math.min(lines.length, index + CONTEXT + 1);
    const last = ranges.at(-1);
    if (last !== undefined && from <= last[1]) last[1] = to;
    else ranges.push([from, to]);
  }
  return ranges;
}

function hunk(lines: readonly Line[], from: number, to: number): string {
  const count = (part: readonly Line[], without: Mark): number =>
    part.filter(({ mark }) => mark !== without).length;
  const [above, inside] = [lines.slice(0, from), lines.slice(from, to)];
  const range = (without: Mark): string => {
    const length = count(inside, without);
    // A range without lines names the line before it.
    return `${count(above, without) + (length === 0 ? 0 : 1)},${length}`;
  };
  const body = inside.map(({ mark, text }) =>
    text.endsWith('\n') ? mark + text : `${mark}${text}\n\\ No newline at end of file\n`,
  );
  return `@@ -${range('+')} +${range('-')} @@\n${body.join('')}`;
}
