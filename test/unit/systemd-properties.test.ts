import { Variant } from 'dbus-next';
import { describe, expect, test } from 'vitest';
import type { StartRequest } from '../../src/executor/port.ts';
import { toBus, unitProperties } from '../../src/systemd/properties.ts';

const request: StartRequest = {
  unit: 'outlive-main-issue42-3.service',
  nonce: '0123456789abcdef0123456789abcdef',
  attemptId: 'a1',
  description: 'outlive main issue42, attempt 3',
  argv: ['/usr/bin/node', '/opt/outlive/dist/attempt/main.js', '/state/attempts/w/a/launch.json'],
  attemptDirectory: '/state/attempts/w/a',
  environment: { HOME: '/home/x', PATH: '/usr/bin' },
  credentials: [],
  hardTimeoutMs: 3_600_000,
  cancelGraceMs: 15_000,
};

const of = (changes: Partial<StartRequest> = {}) =>
  unitProperties('main', { ...request, ...changes });
const value = (name: string, changes: Partial<StartRequest> = {}): unknown =>
  of(changes).find((property) => property.name === name)?.value;

describe('the properties of a unit', () => {
  test('are exactly these, each with the signature systemd takes', () => {
    expect(of().map(({ name, signature }) => `${name} ${signature}`)).toEqual([
      'Type s',
      'ExecStart a(sasb)',
      'Description s',
      'Slice s',
      'WorkingDirectory s',
      'Environment as',
      'RuntimeMaxUSec t',
      'TimeoutStopUSec t',
      'KillMode s',
      'KillSignal i',
      'SendSIGKILL b',
      'OOMPolicy s',
      'CollectMode s',
      'AddRef b',
      'SyslogIdentifier s',
      'UMask u',
    ]);
  });

  test('have a sandbox only where there is to be one, and none that the exit record or a nest dies of', () => {
    const sandbox = { inaccessible: ['/store', '-/run/dbus'], readOnly: ['-/decisions'] };
    const added = of({ sandbox }).slice(of().length);
    expect(added.map(({ name, signature, value: is }) => [name, signature, is])).toEqual([
      ['PrivateUsers', 'b', true],
      ['NoNewPrivileges', 'b', true],
      ['ProtectControlGroups', 'b', true],
      ['RestrictSUIDSGID', 'b', true],
      ['LockPersonality', 'b', true],
      ['InaccessiblePaths', 'as', sandbox.inaccessible],
      ['ReadOnlyPaths', 'as', sandbox.readOnly],
    ]);
    for (const path of ['relative', '-relative', '/a\nb', '/a ']) {
      expect(() => of({ sandbox: { ...sandbox, inaccessible: [path] } })).toThrow(
        expect.objectContaining({ code: 'path_unsupported' }),
      );
    }
  });

  test('have the program as path and as first argument, and failures count', () => {
    expect(value('ExecStart')).toEqual([['/usr/bin/node', request.argv, false]]);
  });

  test('have times in microseconds, and five seconds more to stop than the wrapper takes', () => {
    expect(value('RuntimeMaxUSec')).toBe(3_600_000_000n);
    expect(value('TimeoutStopUSec')).toBe(20_000_000n);
  });

  test('never have an infinite deadline: 0 would be one', () => {
    expect(value('RuntimeMaxUSec', { hardTimeoutMs: 0 })).toBe(1_000n);
  });

  test('carry the nonce, which no variable of the caller can replace', () => {
    const environment = { OUTLIVE_NONCE: 'theirs', A: '1' };
    expect(value('Environment', { environment })).toEqual([
      `OUTLIVE_NONCE=${request.nonce}`,
      'A=1',
    ]);
    expect(value('Environment')).toEqual([
      'HOME=/home/x',
      'PATH=/usr/bin',
      `OUTLIVE_NONCE=${request.nonce}`,
    ]);
  });

  test('run in the slice of the workspace, named in the journal after the unit', () => {
    expect(value('Slice')).toBe('outlive-attempts-main.slice');
    expect(value('SyslogIdentifier')).toBe('outlive-main-issue42-3');
  });

  test('name credentials by file, and only when there are any', () => {
    const credentials = [{ name: 'ANTHROPIC_API_KEY', path: '/run/user/1000/outlive/k' }];
    expect(value('LoadCredential', { credentials })).toEqual([
      ['ANTHROPIC_API_KEY', '/run/user/1000/outlive/k'],
    ]);
    expect(value('LoadCredential')).toBeUndefined();
  });

  test('keep a description on one line, bounded, never empty', () => {
    expect(value('Description', { description: 'a\nb\tc' })).toBe('a b c');
    expect(value('Description', { description: 'é'.repeat(500) })).toBe('é'.repeat(200));
    expect(value('Description', { description: ' \n' })).toBe('outlive attempt');
  });

  test('become Variants for the bus and are plain data before', () => {
    const [[name, variant] = []] = toBus(of());
    expect(name).toBe('Type');
    expect(variant).toBeInstanceOf(Variant);
    expect(variant).toMatchObject({ signature: 's', value: 'exec' });
    expect(of().some((property) => property.value instanceof Variant)).toBe(false);
  });
});

describe('what systemd could not carry unchanged is refused as path_unsupported', () => {
  const refused = expect.objectContaining({ code: 'path_unsupported' });
  test.each(['a$b', 'a"b', 'a\\b', '100%', 'a\nb', 'a\tb', 'a\u0000b', 'a\u007fb', ';'])(
    'the argument %j',
    (argument) => {
      expect(() => of({ argv: ['/bin/echo', argument] })).toThrow(refused);
    },
  );

  test.each(['', 'a b', "it's", 'ü€', '-x', '@x', '{}', '*', '~', '#', 'a;b'])(
    'not the argument %j',
    (argument) => {
      expect(value('ExecStart', { argv: ['/bin/echo', argument] })).toEqual([
        ['/bin/echo', ['/bin/echo', argument], false],
      ]);
    },
  );

  test.each([
    ['a relative program', ['echo']],
    ['no program', []],
  ])('%s', (_, argv) => {
    expect(() => of({ argv })).toThrow(refused);
  });

  test.each(['relative', '/a\nb', '/ends in a blank '])('the attempt directory %j', (directory) => {
    expect(() => of({ attemptDirectory: directory })).toThrow(refused);
  });

  test('not a directory with what a unit file would expand', () => {
    const attemptDirectory = `/srv/x/it's $HOME %t "q" \\`;
    expect(value('WorkingDirectory', { attemptDirectory })).toBe(attemptDirectory);
  });

  test('a relative credential', () => {
    expect(() => of({ credentials: [{ name: 'k', path: 'k' }] })).toThrow(refused);
  });

  test.each(['A B', '', '1A', 'A=B'])('the variable name %j', (name) => {
    expect(() => of({ environment: { [name]: '1' } })).toThrow(refused);
  });
});
