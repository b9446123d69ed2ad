import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { Client } from '../../src/client/client.ts';
import { printArtifact } from '../../src/commands/artifacts.ts';
import { Output } from '../../src/commands/output.ts';

/** What is printed of an artifact that comes in these pieces. */
async function printed(pieces: readonly Buffer[], isTerminal: boolean): Promise<Buffer> {
  const stream = Object.assign(new PassThrough(), { isTTY: isTerminal });
  const stdout = new Output(stream as unknown as NodeJS.WriteStream, {
    env: {},
    onBroken: () => undefined,
  });
  const client = {
    artifactContent: async function* () {
      for (const piece of pieces) yield await Promise.resolve(piece);
    },
  } as unknown as Client;
  await printArtifact({ client, stdout }, { id: 'a' });
  stream.end();
  return Buffer.concat(await stream.toArray());
}

/** Cut in the middle of a character, and of a line end. */
const PIECES = [
  Buffer.from('\x1b]0;title\x07\u202e'),
  ...[Buffer.from('ü').subarray(0, 1), Buffer.from('ü').subarray(1)],
  Buffer.from('one\r'),
  Buffer.from('\ntwo\r'),
];

test('on a terminal an artifact can do nothing, wherever its pieces are cut', async () => {
  expect((await printed(PIECES, true)).toString()).toBe(
    String.raw`\x1b]0;title\x07\u{202e}ü`.concat('one\ntwo\\x0d'),
  );
});

test('into a pipe it goes byte for byte, text or not', async () => {
  const pieces = [...PIECES, Buffer.from([0, 0xff, 0xfe])];
  expect(await printed(pieces, false)).toEqual(Buffer.concat(pieces));
});
