/** What the wrapper does with a key that it keeps, before anything runs. */
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { readProxiedKeys, secretsOf, TokenDesk } from '../../src/attempt/proxied-keys.ts';
import type { KeyProxySpec, LaunchFile } from '../../src/domain/attempt-files.ts';

const SPEC: KeyProxySpec = {
  provider: 'acme',
  keyVariable: 'ACME_KEY',
  baseUrl: 'https://api.acme.example/v1',
  header: 'authorization',
  scheme: 'Bearer',
};
const launchOf = (kind: 'pi' | 'command', keyProxy: readonly KeyProxySpec[] = [SPEC]): LaunchFile =>
  ({ runner: { kind }, keyProxy }) as unknown as LaunchFile;

/** A directory of credentials as systemd leaves it: nobody may write. */
function credentials(files: Readonly<Record<string, string>>): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'outlive-credentials-'));
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(path.join(directory, name), text, { mode: 0o400 });
  }
  chmodSync(directory, 0o500);
  onTestFinished(() => {
    chmodSync(directory, 0o700);
    rmSync(directory, { recursive: true });
  });
  return directory;
}

describe('keys', () => {
  test('are read, and their files are gone before anything runs; others stay', () => {
    const directory = credentials({ ACME_KEY: 'the-key-0123\n', OTHER: 'for Pi' });
    const twice = [SPEC, { ...SPEC, provider: 'acme-eu' }];
    const keys = readProxiedKeys(launchOf('pi', twice), directory);
    expect(keys.map(({ provider, key }) => [provider, key])).toEqual([
      ['acme', { value: 'the-key-0123' }],
      ['acme-eu', { value: 'the-key-0123' }],
    ]);
    expect(existsSync(path.join(directory, 'ACME_KEY'))).toBe(false);
    expect(existsSync(path.join(directory, 'OTHER'))).toBe(true);
  });

  test.each<[string, string | undefined, string]>([
    ['no file', '/nonexistent', 'ACME_KEY: ENOENT'],
    ['no credentials at all', undefined, 'ACME_KEY: CREDENTIALS_DIRECTORY is not set'],
  ])('with %s are told to be missing, by name', (_, directory, missing) => {
    expect(readProxiedKeys(launchOf('pi'), directory)).toMatchObject([{ key: { missing } }]);
  });

  test.each(['', ' ', 'two\nlines', 'nul\0', 'wörter'])(
    'that cannot be sent are told so: %j',
    (text) => {
      const missing = 'ACME_KEY: what it holds cannot be sent in a header';
      const directory = credentials({ ACME_KEY: text });
      expect(readProxiedKeys(launchOf('pi'), directory)).toMatchObject([{ key: { missing } }]);
    },
  );

  test('are not for a command', () => {
    expect(readProxiedKeys(launchOf('command'), credentials({ ACME_KEY: 'key' }))).toEqual([]);
  });

  test('and tokens are known to redaction, each under its name', () => {
    const keys = readProxiedKeys(launchOf('pi'), credentials({ ACME_KEY: 'the-key-0123' }));
    const [token] = keys.map((key) => key.token);
    expect(secretsOf(keys)).toEqual({ 'token:acme': token, ACME_KEY: 'the-key-0123' });
  });

  test('have a token of their own each time, which a header can carry and Pi takes as it is', () => {
    const [one, two] = [1, 2].map(() => readProxiedKeys(launchOf('pi'), undefined)[0]?.token);
    expect(one).toMatch(/^outlive-[\w-]{43}$/);
    expect(one).not.toBe(two);
  });
});

describe('the tokens', () => {
  const providers = [{ name: 'acme', baseUrl: 'http://127.0.0.1:1', token: 'the-token' }];
  const question = {
    type: 'extension_ui_request',
    id: 'q',
    method: 'input',
    title: 'outlive:tokens',
  };
  const answer = { type: 'extension_ui_response', id: 'q' };

  test('are given once, to who asks first', () => {
    const desk = new TokenDesk(providers);
    const value = JSON.stringify({ acme: 'the-token' });
    expect(desk.answerTo(question)).toEqual({ ...answer, value });
    expect(desk.answerTo(question)).toEqual({ ...answer, cancelled: true });
  });

  test('are not given once something was prompted', () => {
    const desk = new TokenDesk(providers);
    desk.close();
    expect(desk.answerTo(question)).toEqual({ ...answer, cancelled: true });
  });

  test('are nothing that another event gets', () => {
    const desk = new TokenDesk(providers);
    for (const event of [
      { ...question, title: 'outlive:tokens?' },
      { ...question, type: 'other' },
    ]) {
      expect(desk.answerTo(event)).toBeNull();
    }
  });
});
