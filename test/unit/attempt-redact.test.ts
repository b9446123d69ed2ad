import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { RedactedStream, redactor } from '../../src/attempt/redact.ts';
import { knownSecrets } from '../../src/attempt/secrets.ts';
import type { LaunchFile } from '../../src/domain/attempt-files.ts';

const VALUE = 'pa"ss\\wörd-0123456789';
const PEM = `-----BEGIN RSA PRIVATE KEY-----\n${'QUJD'.repeat(16)}\n${'x'.repeat(9)}=\n-----END RSA PRIVATE KEY-----`;
const TOKENS = [
  `sk-${'aB3'.repeat(10)}`,
  `ghp_${'aB3'.repeat(12)}`,
  `github_pat_${'aB3_'.repeat(9)}`,
  'xoxb-123456789012-abcdefABCDEF',
  'AKIAIOSFODNN7EXAMPLE',
  'glpat-abcdEFGH1234ijklMNOP',
  `lin_api_${'aB3'.repeat(12)}`,
  `eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.${'aB3'.repeat(12)}`,
  PEM,
];
const redact = redactor({ KEY: VALUE });

describe('redaction', () => {
  it.each([VALUE, ...TOKENS])('finds %j plain, in JSON and in JSON inside JSON', (secret) => {
    const once = JSON.stringify({ text: `it is ${secret}.\n${secret}` });
    for (const text of [`\u001b[31m${secret}\n`, once, JSON.stringify({ args: once })]) {
      const clean = redact(text);
      const core = secret.slice(5, 20);
      expect(clean).not.toContain(core);
      expect(clean).not.toContain(JSON.stringify(core).slice(1, -1));
      expect(clean).toContain('[redacted');
    }
    expect(JSON.parse(redact(once))).toBeTypeOf('object');
  });

  it('takes the token of a Bearer header and leaves the word', () => {
    expect(redact('Authorization: Bearer abcdefgh12345678ijkl')).toBe(
      'Authorization: Bearer [redacted]',
    );
  });

  it.each([
    'task-implement-the-next-thing',
    'sk-implement-the-next-thing',
    'a bearer of long news, AKIA, eyJ and ghp_short',
    '-----BEGIN CERTIFICATE-----',
  ])('leaves %j alone', (text) => {
    expect(redact(text)).toBe(text);
  });

  it.each([VALUE, ...TOKENS, 'Bearer abcdefgh12345678ijkl'])(
    'finds %j at every cut in two',
    (secret) => {
      const text = `before ${secret} after\n`;
      const whole = redact(text);
      for (let cut = 0; cut <= text.length; cut += 1) {
        const stream = new RedactedStream(redact);
        const said = stream.push(text.slice(0, cut)) + stream.push(text.slice(cut)) + stream.end();
        expect(said, `cut at ${cut}`).toBe(whole);
      }
    },
  );

  it('finds a secret that comes a character at a time', () => {
    const stream = new RedactedStream(redact);
    const said = `x ${VALUE} y ${TOKENS[0]} z`.replace(/./g, (one) => stream.push(one));
    expect(said + stream.end()).toBe('x [redacted KEY] y [redacted] z');
  });

  it('lets through at once what begins no secret', () => {
    expect(new RedactedStream(redact).push('half a line: 50%')).toBe('half a line: 50%');
  });
});

describe('known values', () => {
  it('are also those of variables whose name says so, whatever runs; no words and no paths; X14', () => {
    const environment = {
      DEPLOY_TOKEN: 'dt-5',
      db_password: 'hunter 22',
      SIGNING_KEY: '/etc/keys/signing.pem',
      API_KEY: 'not-needed',
      EDITOR: 'ed-7',
    };
    const launch = { runner: { kind: 'command' }, environment } as unknown as LaunchFile;
    expect(knownSecrets(launch, { CREDENTIAL: 'C-4' })).toEqual({
      DEPLOY_TOKEN: 'dt-5',
      db_password: 'hunter 22',
      CREDENTIAL: 'C-4',
    });
  });

  it('are the credentials, the keys of auth.json and models.json, and the variables they name', () => {
    const agent = mkdtempSync(path.join(tmpdir(), 'agent-'));
    const write = (name: string, value: unknown): void =>
      writeFileSync(path.join(agent, name), JSON.stringify(value));
    write('auth.json', {
      one: { type: 'api_key', key: 'AUTH-KEY-1' },
      two: { type: 'oauth', access: 'ACCESS-2', refresh: 'REFRESH-2', expires: 5 },
    });
    write('models.json', {
      providers: {
        lab: {
          apiKey: '$NAMED',
          baseUrl: 'http://127.0.0.1',
          headers: { 'x-a': 'HEADER-3 \u0024{OTHER}' },
        },
        local: { apiKey: 'ollama' },
        run: { apiKey: '!cat key' },
      },
    });
    const launch = {
      runner: { kind: 'pi' },
      environment: { PI_CODING_AGENT_DIR: agent, NAMED: 'VALUE-OF-NAMED', OTHER: 'VALUE-OF-OTHER' },
    } as unknown as LaunchFile;
    const values = Object.values(knownSecrets(launch, { CREDENTIAL: 'CREDENTIAL-4' }));
    expect(values.sort()).toEqual([
      '$NAMED',
      'ACCESS-2',
      'AUTH-KEY-1',
      'CREDENTIAL-4',
      'HEADER-3 \u0024{OTHER}',
      'REFRESH-2',
      'VALUE-OF-NAMED',
      'VALUE-OF-OTHER',
    ]);
  });
});
