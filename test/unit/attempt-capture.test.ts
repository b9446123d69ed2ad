import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Capture } from '../../src/attempt/capture.ts';
import { redactor } from '../../src/attempt/redact.ts';
import { TailRing } from '../../src/attempt/tail-ring.ts';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'outlive-capture-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

interface Kept {
  readonly file: string;
  readonly tail: string;
}

function capture(chunks: readonly Buffer[], limit: number, head: number, secrets = {}): Kept {
  const file = path.join(directory, 'log');
  const warnings: string[] = [];
  const options = {
    file,
    limit,
    head,
    redact: redactor(secrets),
    warn: (text: string) => warnings.push(text),
  };
  const kept = new Capture(options);
  for (const chunk of chunks) kept.push(chunk);
  const tail = kept.tailText(1_000);
  kept.finish();
  expect(warnings).toEqual([]);
  return { file: readFileSync(file, 'utf8'), tail };
}

test('the ring keeps the last bytes, whatever the chunks', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array()), fc.nat(40), (chunks, size) => {
      const ring = new TailRing(size);
      for (const chunk of chunks) ring.push(Buffer.from(chunk));
      const all = Buffer.concat(chunks);
      expect(ring.bytes()).toEqual(Buffer.from(all.subarray(Math.max(0, all.length - size))));
    }),
  );
});

test('whatever comes, head and tail are kept in whole characters and the cut is counted', () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'ä', '€', '😀'), maxLength: 60 });
  fc.assert(
    fc.property(
      fc.array(text),
      fc.integer({ min: 16, max: 64 }),
      fc.boolean(),
      (texts, limit, withHead) => {
        const all = texts.join('');
        const { file } = capture(
          texts.map((chunk) => Buffer.from(chunk)),
          limit,
          withHead ? Math.floor(limit / 2) : 0,
        );
        const size = Buffer.byteLength(all);
        const parts = /^(?:([\s\S]*)\n)?\[… (\d+) bytes cut …\]\n([\s\S]*)$/.exec(file);
        const [before = '', bytes = '0', tail = ''] = parts?.slice(1) ?? [file];
        const keptBytes = Buffer.byteLength(before) + Buffer.byteLength(tail);
        expect(parts === null).toBe(size <= limit);
        expect(all.startsWith(before) && all.endsWith(tail)).toBe(true);
        expect(keptBytes + Number(bytes)).toBe(size);
        expect(keptBytes).toBeGreaterThan(Math.min(size, limit) - 8);
      },
    ),
  );
});

test('bytes that are no text stay as they are', () => {
  const bytes = Buffer.from([0xff, 0xfe, 0x80, 0x00]);
  capture([bytes], 100, 50);
  expect(readFileSync(path.join(directory, 'log'))).toEqual(bytes);
});

test('a secret across two chunks is gone from the file', () => {
  const { file } = capture([Buffer.from('key=sk-12'), Buffer.from('345678 €')], 100, 50, {
    KEY: 'sk-12345678',
  });
  expect(file).toBe('key=[redacted KEY] €');
});

test('a file that cannot be written is a sentence, and the tail is still known', () => {
  const warnings: string[] = [];
  const kept = new Capture({
    file: path.join(directory, 'no/such/log'),
    limit: 10,
    head: 5,
    redact: redactor({}),
    warn: (text) => warnings.push(text),
  });
  kept.push(Buffer.from('hello'));
  kept.finish();
  expect(warnings).toEqual([expect.stringContaining('ENOENT')]);
  expect(kept.tailText(3)).toBe('llo');
});

test('a secret is on the disk at no moment, also not before the end', () => {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'capture-')), 'log');
  const options = { file, limit: 1024, head: 512, warn: () => {} };
  const live = new Capture({ ...options, redact: redactor({ KEY: 'hunter2-ü-hunter2' }) });
  const bytes = Buffer.from('a hunter2-ü-hunter2 .');
  for (const byte of bytes) {
    live.push(Buffer.from([byte]));
    expect(readFileSync(file, 'utf8')).not.toContain('h');
  }
  expect(readFileSync(file, 'utf8')).toBe('a [redacted KEY] .');
  live.finish();
});
