import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatDuration, parseDuration } from '../../src/commands/duration.ts';
import { sanitize, sanitizeLine } from '../../src/commands/sanitize.ts';
import { table, truncate, width } from '../../src/commands/table.ts';

describe('parseDuration', () => {
  it.each([
    ['90m', 5_400_000],
    ['1h30m', 5_400_000],
    ['45s', 45_000],
    ['500ms', 500],
    ['2d', 172_800_000],
    ['1h2m3s4ms', 3_723_004],
    ['0s', 0],
  ])('%s', (text, milliseconds) => {
    expect(parseDuration(text)).toBe(milliseconds);
  });

  it.each(['', '90', 'm', '30m1h', '5m5m', '1.5h', '-5m', '5 m', '5M', '99999999999999999d'])(
    'refuses %j and says how it is written',
    (text) => {
      expect(() => parseDuration(text)).toThrow(
        expect.objectContaining({ code: 'usage', message: expect.stringContaining('1h30m') }),
      );
    },
  );

  it('reads what formatDuration writes, to the second largest unit', () => {
    fc.assert(
      fc.property(fc.integer({ min: 10_000, max: 400_000_000 }), (milliseconds) => {
        const back = parseDuration(formatDuration(milliseconds).replace(' ', ''));
        expect(back).toBeLessThanOrEqual(milliseconds);
        expect(milliseconds - back).toBeLessThan(Math.max(1_000, milliseconds / 12));
      }),
    );
  });
});

describe('formatDuration', () => {
  it.each([
    [-5, '0ms'],
    [999, '999ms'],
    [1_999, '1.9s'],
    [2_000, '2s'],
    [10_999, '10s'],
    [61_000, '1m 1s'],
    [3_600_000, '1h'],
    [3_605_000, '1h'],
    [90_061_000, '1d 1h'],
  ])('%d', (milliseconds, text) => {
    expect(formatDuration(milliseconds)).toBe(text);
  });
});

describe('sanitize', () => {
  it('writes escape sequences out instead of sending them', () => {
    expect(sanitize('\u001b[2J\u001b]0;title\u0007x\u009b31m')).toBe(
      '\\x1b[2J\\x1b]0;title\\x07x\\x9b31m',
    );
  });

  it('keeps tabs, line feeds and every letter', () => {
    expect(sanitize('a\tb\r\nc é 漢 👩‍💻 עברית')).toBe('a\tb\nc é 漢 👩‍💻 עברית');
  });

  it('shows what would reorder or hide text, and a lone carriage return', () => {
    expect(sanitize('safe\u202etxt.exe\u200b\u{e0041}\rrm')).toBe(
      'safe\\u{202e}txt.exe\\u{200b}\\u{e0041}\\x0drm',
    );
  });

  it('leaves no control character but tab and line feed, whatever comes in', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        expect(sanitize(text).replaceAll(/[\t\n]/g, '')).not.toMatch(/\p{Cc}/u);
        expect(sanitizeLine(text)).not.toMatch(/[\p{Cc}\p{Bidi_Control}]/u);
      }),
    );
  });
});

describe('table', () => {
  it('pads by cells, with nothing at the end of a line', () => {
    expect(
      table([
        ['HANDLE', 'STATUS', ''],
        ['漢字', 'running', 'x'],
        ['a', '', ''],
      ]),
    ).toEqual(['HANDLE  STATUS', '漢字    running  x', 'a']);
  });

  it('counts wide characters as two and marks as none', () => {
    expect(width('e\u0301')).toBe(1);
    expect(width('漢🙂')).toBe(4);
  });

  it('truncates within the cells there are', () => {
    expect(truncate('abcdef', 6)).toBe('abcdef');
    expect(truncate('abcdefg', 6)).toBe('abcde…');
    expect(truncate('漢字漢字', 4)).toBe('漢…');
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.nat(30), (text, cells) => {
        expect(width(truncate(text, cells))).toBeLessThanOrEqual(cells);
      }),
    );
  });
});
