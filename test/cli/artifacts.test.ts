/** `outlive artifacts` and `outlive artifact` as processes, against a daemon that answers by script. */
import { afterEach, describe, expect, it } from 'vitest';
import type { ArtifactView } from '../../src/api/schemas-artifacts.ts';
import { FakeDaemon, json, problem, WORK_UNIT_ID } from './fake-daemon.ts';
import { outlive } from './outlive.ts';

const open: FakeDaemon[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
});

const artifact = (changes: Partial<ArtifactView>): ArtifactView => ({
  id: 'artifact-1',
  workUnitId: WORK_UNIT_ID,
  attemptId: 'attempt-1',
  attemptNumber: 1,
  kind: 'stdout',
  fileName: 'stdout.log',
  bytes: 2048,
  truncated: false,
  sha256: 'ab'.repeat(32),
  createdAt: '2026-01-02T03:04:05.678Z',
  ...changes,
});
const ITEMS = [
  artifact({ id: 'first' }),
  artifact({ id: 'second', attemptNumber: 2, truncated: true }),
  artifact({ id: 'diff', kind: 'diff', fileName: 'changes.diff' }),
];

async function serve(items: readonly ArtifactView[] = ITEMS): Promise<string> {
  const daemon = new FakeDaemon(({ url }, response) => {
    const id = /^\/artifacts\/(\w+)\/content$/.exec(url.pathname)?.[1];
    if (url.pathname === '/work-units/issue42/artifacts') {
      json(response, 200, { items, nextCursor: null });
    } else if (id === 'diff') problem(response, 'artifact_gone', 'It is not there any more.');
    else if (id) response.end(`content of ${id}\x1b[2J\r\n`);
    else problem(response, 'not_found', `There is no ${url.pathname}.`);
  });
  open.push(await daemon.listen());
  return daemon.runtimeDirectory;
}

describe('outlive artifacts', () => {
  it('lists them, for people and for programs', async () => {
    const runtimeDirectory = await serve();
    const { code, stdout } = await outlive(['artifacts', 'issue42'], { runtimeDirectory });
    expect(code).toBe(0);
    expect(stdout).toBe(
      [
        'ATTEMPT  KIND    SIZE   WHOLE  SHA256        ID',
        '1        stdout  2 KiB  yes    abababababab  first',
        '2        stdout  2 KiB  no     abababababab  second',
        '1        diff    2 KiB  yes    abababababab  diff',
        '',
      ].join('\n'),
    );
    const asJson = await outlive(['artifacts', 'issue42', '--json'], { runtimeDirectory });
    expect(JSON.parse(asJson.stdout)).toEqual({ items: ITEMS, nextCursor: null });
  });

  it('says why there are none', async () => {
    const runtimeDirectory = await serve([]);
    const { code, stdout, stderr } = await outlive(['artifacts', 'issue42'], { runtimeDirectory });
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toContain('no attempt has ended');
  });
});

describe('outlive artifact', () => {
  it.each([
    ['of the newest attempt that has one', [], 'second'],
    ['of the attempt that is named', ['--attempt', '1'], 'first'],
  ])('prints that %s, byte for byte into a pipe', async (_, options, id) => {
    const runtimeDirectory = await serve();
    const args = ['artifact', 'issue42', 'stdout', ...options];
    const { code, stdout, stderr } = await outlive(args, { runtimeDirectory });
    expect({ code, stdout }).toEqual({ code: 0, stdout: `content of ${id}\x1b[2J\r\n` });
    const cut = 'outlive: a bound was reached, so this is not all there was.\n';
    expect(stderr).toBe(id === 'second' ? cut : '');
  });

  it.each([
    [
      ['issue42', 'transcript'],
      'There is no transcript of issue42. See: outlive artifacts issue42.',
    ],
    [['issue42', 'stdout', '--attempt', '3'], 'There is no stdout of attempt 3 of issue42.'],
    [['issue42', 'diff'], 'It is not there any more.'],
    [['nobody', 'diff'], 'There is no /work-units/nobody/artifacts.'],
  ])('%j exits with 3', async (args, said) => {
    const runtimeDirectory = await serve();
    const { code, stdout, stderr } = await outlive(['artifact', ...args], { runtimeDirectory });
    expect(stderr).toContain(said);
    expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
  });
});
