/** What `docs.mjs --check` must notice, each on a small tree of its own. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';

const SCRIPT = fileURLToPath(new URL('../../ops/scripts/docs.mjs', import.meta.url));
const run = promisify(execFile);

let root: string;
const at = (file: string): string => path.join(root, file);

interface Answer {
  readonly status: number;
  readonly problems: string;
}

async function docs(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Answer> {
  try {
    const { stderr } = await run(process.execPath, [SCRIPT, '--root', root, ...args], {
      env: { ...process.env, ...env },
    });
    return { status: 0, problems: stderr };
  } catch (error) {
    const { code, stderr } = error as { code: number; stderr: string };
    return { status: code, problems: stderr };
  }
}

const numbers = (count: number, prefix: string, width: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}${String(index + 1).padStart(width, '0')}`);

/** A whole checklist of open rows; a changed row may be several lines, or none. */
function checklist(changed: Readonly<Record<string, string>> = {}, more = ''): string {
  const rows = [...numbers(354, '', 3), ...numbers(29, 'X', 2)].map(
    (number) => changed[number] ?? `- [ ] **${number}** A sentence. → durable core\n`,
  );
  return `# Checklist\n\n${rows.join('')}${more}`;
}

const CASE = 'T99';
const TEST_FILE = `
describe('a suite', () => {
  it('proves it', () => {});
  it.each(CASES)('$title', () => {});
  it.skip('proves nothing yet', () => {});
});
const CASES = [{ title: "the daemon's case" }];
`;
const ticked = (title: string, file = 'test/a.test.ts'): string =>
  `- [x] **001** A sentence.\n  - \`${file}\`: \`${title}\`\n`;

beforeAll(async () => {
  root = mkdtempSync(path.join(os.tmpdir(), 'outlive-docs-'));
  mkdirSync(at('test'));
  mkdirSync(at('docs'));
  writeFileSync(at('test/a.test.ts'), TEST_FILE);
  writeFileSync(at('README.md'), 'See [the reference](docs/reference.md#errors).\n');
  await docs([]);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function checkWith(text: string): Promise<Answer> {
  writeFileSync(at('docs/checklist.md'), text);
  return docs(['--check']);
}

test('a whole tree passes, whatever terminal, home and workspace', async () => {
  writeFileSync(at('docs/checklist.md'), checklist({ '001': ticked('proves it') }));
  const env = { COLUMNS: '40', FORCE_COLOR: '1', HOME: '/nowhere', OUTLIVE_WORKSPACE: 'other' };
  // Node itself remarks on both at once, in whoever's shell has the other.
  expect(await docs(['--check'], { ...env, NO_COLOR: undefined })).toEqual({
    status: 0,
    problems: '',
  });
});

test('a table that is not what the code says, with the line as it is and as it should be', async () => {
  const written = readFileSync(at('docs/reference.md'), 'utf8');
  writeFileSync(at('docs/reference.md'), written.replace('| `oom` |', '| `omo` |'));
  const { status, problems } = await checkWith(checklist());
  writeFileSync(at('docs/reference.md'), written);
  expect(status).toBe(1);
  expect(problems).toMatch(/^docs\/reference\.md:\d+ is not what the code says/);
  expect(problems).toMatch(/^ {2}- \| `omo` \|.*\n {2}\+ \| `oom` \|/m);
});

test.each([
  ['a test that is not there', ticked('proves more'), 'is not in that file'],
  ['a test that is skipped', ticked('proves nothing yet'), 'is not run'],
  ['a file that is not there', ticked('proves it', 'test/b.test.ts'), 'is in no test file'],
  ['a suite that is not there', ticked('no suite › proves it'), 'is not in that file'],
  ['no test at all', '- [x] **001** A sentence.\n', 'names no test'],
])('a ticked row that names %s', async (_, row, problem) => {
  const { status, problems } = await checkWith(checklist({ '001': row }));
  expect(status).toBe(1);
  expect(problems).toContain(problem);
  expect(problems.trim().split('\n')).toHaveLength(1);
});

test('a test from a table of cases is named by suite and case', async () => {
  const row = ticked("a suite › the daemon's case");
  expect(await checkWith(checklist({ '001': row }))).toEqual({ status: 0, problems: '' });
});

test('a test of a table that several files share is named in the file that runs it', async () => {
  mkdirSync(at('test/support'), { recursive: true });
  writeFileSync(at('test/support/conformance-b.ts'), TEST_FILE);
  const uses = "import { cases } from '../support/conformance-b.ts';\ncases();\n";
  mkdirSync(at('test/tier'), { recursive: true });
  writeFileSync(at('test/tier/b.test.ts'), uses);
  const row = ticked('proves it', 'test/tier/b.test.ts');
  expect(await checkWith(checklist({ '001': row }))).toEqual({ status: 0, problems: '' });
  const skipped = ticked('proves nothing yet', 'test/tier/b.test.ts');
  expect((await checkWith(checklist({ '001': skipped }))).problems).toContain('is not run');
});

test.each([
  ['missing', { '354': '' }, 'row 354 is there 0 times'],
  ['there twice', { X29: '- [ ] **X28** Again. → recovery\n' }, 'row X28 is there 2 times'],
  ['of no stage', { '002': '- [ ] **002** A sentence. → someday\n' }, '002 does not end in'],
  ['refused without a reason', { '003': '- [-] **003** No. → guards\n' }, '003 does not end in'],
  [
    'partial and nobody owes the rest',
    { '001': ticked('proves it').replace('[x]', '[~]') },
    '001 is partial but no stage owes the rest',
  ],
])('a row that is %s', async (_, changed, problem) => {
  const { status, problems } = await checkWith(checklist(changed));
  expect(status).toBe(1);
  expect(problems).toContain(problem);
});

test('a test that carries a peer case which is not listed', async () => {
  writeFileSync(at('test/peer.test.ts'), `it('does better; ${CASE} someone#12', () => {});\n`);
  const silent = await checkWith(checklist());
  const row = `- **${CASE}** What went wrong.\n  - \`test/peer.test.ts\`: \`does better; ${CASE} someone#12\`\n`;
  const listed = await checkWith(checklist({}, row));
  rmSync(at('test/peer.test.ts'));
  expect(silent.problems).toContain(`test/peer.test.ts has a test for ${CASE}`);
  expect(listed).toEqual({ status: 0, problems: '' });
});

test('a link that leads nowhere, but not one in code or to elsewhere', async () => {
  const page = '[a](missing.md) [b](../README.md) [c](https://example.org/x) `[d](gone.md)`\n';
  writeFileSync(at('docs/page.md'), page);
  const { status, problems } = await checkWith(checklist());
  rmSync(at('docs/page.md'));
  expect(status).toBe(1);
  expect(problems).toBe('docs/page.md: the link missing.md leads nowhere\n');
});
