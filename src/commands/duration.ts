/** Durations as people type and read them: `90m`, `1h30m`, `45s`, `500ms`. */
import { OutliveError } from '../domain/errors.ts';

const UNITS: Readonly<Record<string, number>> = {
  d: 86_400_000,
  h: 3_600_000,
  m: 60_000,
  s: 1_000,
  ms: 1,
};

// Each unit at most once, largest first, so that `30m1h` is a typo and not a surprise.
const DURATION = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?$/;

/**
 * Milliseconds of a duration.
 * @throws OutliveError `usage` for anything else; a bare number has no unit and is refused.
 */
export function parseDuration(text: string): number {
  const match = DURATION.exec(text);
  const total = Object.values(UNITS).reduce(
    (sum, unit, index) => sum + Number(match?.[index + 1] ?? 0) * unit,
    0,
  );
  if (text !== '' && match && Number.isSafeInteger(total)) return total;
  throw new OutliveError(
    'usage',
    `"${text}" is not a duration. Write it with its unit, as 90m, 1h30m, 45s or 500ms.`,
  );
}

/** The two largest units, rounded down: `1h 30m`, `2m 13s`, `45s`; small ones `4.2s` and `500ms`. */
export function formatDuration(milliseconds: number): string {
  const total = Math.max(0, Math.floor(milliseconds));
  if (total < 1_000) return `${total}ms`;
  if (total < 10_000) return `${Math.floor(total / 100) / 10}s`;
  const parts: string[] = [];
  let rest = total;
  for (const [name, unit] of Object.entries(UNITS)) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (name !== 'ms' && (count > 0 || parts.length > 0)) parts.push(`${count}${name}`);
  }
  const [first = '', second = ''] = parts;
  return second === '' || second.startsWith('0') ? first : `${first} ${second}`;
}
