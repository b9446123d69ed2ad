/** What the benchmark reports: samples as medians, two things measured in turn, the table. */

interface Spread {
  readonly p50: number;
  readonly p95: number;
  readonly n: number;
}

export interface Figure {
  readonly name: string;
  readonly unit: string;
  /** What is measured, for a reader who has only the table. */
  readonly measures: string;
  readonly ours: Spread;
  /** The same of something else, measured in turn with ours in the same run. */
  readonly beside: (Spread & { readonly what: string }) | null;
  /** Median by median. */
  readonly ratio: number | null;
  /** What it should be, and whether it is; null where nothing is promised. */
  readonly target: { readonly says: string; readonly holds: boolean } | null;
}

/** A promise about a figure: about its median, its p99, its largest sample or its ratio. */
export interface Target {
  readonly of: 'p50' | 'p99' | 'max' | 'ratio';
  readonly atMost?: number;
  readonly atLeast?: number;
}

/** What a figure is made of. */
interface Samples {
  readonly name: string;
  readonly unit: string;
  readonly measures: string;
  readonly ours: readonly number[];
  readonly beside?: { readonly what: string; readonly samples: readonly number[] };
  readonly target?: Target;
}

export function figure({ name, unit, measures, ours, beside, target }: Samples): Figure {
  const spread = spreadOf(ours);
  const other = beside ? { what: beside.what, ...spreadOf(beside.samples) } : null;
  const ratio = other ? round(spread.p50 / other.p50, 2) : null;
  const judged = target ? judge(target, unit, ours, ratio) : null;
  return { name, unit, measures, ours: spread, beside: other, ratio, target: judged };
}

function judge(
  { of, atMost = Infinity, atLeast = -Infinity }: Target,
  unit: string,
  samples: readonly number[],
  ratio: number | null,
): Figure['target'] {
  const sorted = samples.toSorted((a, b) => a - b);
  const share = { p50: 0.5, p99: 0.99, max: 1 };
  const value = of === 'ratio' ? (ratio ?? Number.NaN) : at(sorted, share[of]);
  const bound = atMost === Infinity ? `≥ ${atLeast}` : `≤ ${atMost}`;
  const says = `${of} ${bound}${of === 'ratio' ? '' : ` ${unit}`}, is ${round(value, 2)}`;
  return { says, holds: value <= atMost && value >= atLeast };
}

function spreadOf(samples: readonly number[]): Spread {
  if (samples.length === 0) throw new Error('a figure without samples');
  const sorted = samples.toSorted((a, b) => a - b);
  return { p50: round(at(sorted, 0.5), 1), p95: round(at(sorted, 0.95), 1), n: sorted.length };
}

/** Nearest rank; between the two middle ones for the median of an even number. */
function at(sorted: readonly number[], share: number): number {
  const rank = Math.ceil(share * sorted.length) - 1;
  const value = sorted[rank] ?? Number.NaN;
  const even = share === 0.5 && sorted.length % 2 === 0;
  return even ? (value + (sorted[rank + 1] ?? value)) / 2 : value;
}

const round = (value: number, digits: number): number => Number(value.toFixed(digits));

/**
 * Measures two things in turn, A B, B A, A B, …, so that what else the machine does
 * meets both. A first pair warms caches and is not counted.
 */
export async function inTurn<Ours, Beside>(
  rounds: number,
  ours: () => Promise<Ours>,
  beside: () => Promise<Beside>,
): Promise<{ readonly ours: readonly Ours[]; readonly beside: readonly Beside[] }> {
  await ours();
  await beside();
  const result = { ours: [] as Ours[], beside: [] as Beside[] };
  for (let round = 0; round < rounds; round += 1) {
    if (round % 2 === 0) result.ours.push(await ours());
    result.beside.push(await beside());
    if (round % 2 === 1) result.ours.push(await ours());
  }
  return result;
}

const HEAD = 'figure,unit,ours p50,p95,beside p50,p95,n,ratio,beside,target'.split(',');
const TEXT_COLUMNS: ReadonlySet<number> = new Set([0, 1, 8, 9]);

/** The figures as lines for a person. */
export function table(figures: readonly Figure[]): string {
  const rows = [HEAD, ...figures.map(cells)];
  const widths = HEAD.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return TEXT_COLUMNS.has(column) ? cell.padEnd(width) : cell.padStart(width);
      })
      .join('  ')
      .trimEnd();
  const legend = figures.map(({ name, measures }) => `${name.padEnd(widths[0] ?? 0)}  ${measures}`);
  return [...rows.map(line), '', ...legend].join('\n');
}

function cells({ name, unit, ours, beside, ratio, target }: Figure): string[] {
  return [
    name,
    unit,
    ours.p50.toFixed(1),
    ours.p95.toFixed(1),
    beside?.p50.toFixed(1) ?? '-',
    beside?.p95.toFixed(1) ?? '-',
    String(ours.n),
    ratio?.toFixed(2) ?? '-',
    beside?.what ?? '',
    target ? `${target.holds ? 'holds' : 'MISSED'}: ${target.says}` : '',
  ];
}
