// Runs every check and every tier of tests, one after the other, and adds up what they counted.
//   check.mjs [NAME…]   only those (see --list)
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
process.chdir(root);
const scratch = mkdtempSync(path.join(os.tmpdir(), 'outlive-check-'));
const bin = (name) => path.join(root, 'node_modules/.bin', name);
const env = {
  ...process.env,
  PATH: `${path.join(root, 'node_modules/.bin')}:${process.env.PATH}`,
  FORCE_COLOR: '0',
};
const IN_CI = process.env.CI === 'true' || process.env.CI === '1';
const NOT_POSSIBLE_HERE = 77;

/** Runs a command with its output shown; resolves with its status. */
function run(command, args, capture = false) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      env,
      stdio: ['ignore', capture ? 'pipe' : 'inherit', 'inherit'],
    });
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
      if (!text.includes(MARK)) process.stdout.write(chunk);
    });
    child.on('error', (error) => resolve({ status: 127, text: String(error) }));
    child.on('close', (status) => resolve({ status: status ?? 1, text }));
  });
}

const MARK = '=====results=====';
/** @type {{ passed: number, failed: number, skipped: string[] }} */
const counted = { passed: 0, failed: 0, skipped: [] };

async function check(name, command, args) {
  const { status } = await run(command, args);
  if (status === 0) counted.passed += 1;
  else counted.failed += 1;
  return `${name}: ${status === 0 ? 'ok' : `failed (status ${status})`}`;
}

/** Adds a vitest report up. A tier that ran nothing has failed: it proves nothing. */
function add(name, report, status) {
  const skips = report.testResults
    .flatMap((file) => file.assertionResults)
    .filter(
      (test) => test.status === 'pending' || test.status === 'skipped' || test.status === 'todo',
    );
  counted.skipped.push(...skips.map((test) => `${name}: ${test.fullName}`));
  counted.passed += report.numPassedTests;
  counted.failed += report.numFailedTests;
  // A file that could not even be loaded has no tests to count, and must count.
  const broken = report.testResults.filter(
    (file) =>
      file.status === 'failed' && file.assertionResults.every((test) => test.status !== 'failed'),
  );
  counted.failed += broken.length;
  const nothing = report.numPassedTests + report.numFailedTests === 0;
  if (nothing && broken.length === 0) counted.failed += 1;
  if (status !== 0 && report.numFailedTests + broken.length === 0 && !nothing) counted.failed += 1;
  return `${name}: ${report.numPassedTests} passed, ${report.numFailedTests + broken.length} failed${skips.length ? `, ${skips.length} skipped` : ''}${nothing ? ' (no test ran)' : ''}`;
}

function readReport(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

async function tier(name) {
  const file = path.join(scratch, `${name}.json`);
  const { status } = await run(bin('node'), [
    'node_modules/vitest/vitest.mjs',
    'run',
    '--project',
    name,
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${file}`,
  ]);
  let report = null;
  try {
    report = readReport(readFileSync(file, 'utf8'));
  } catch {}
  if (report) return add(name, report, status);
  counted.failed += 1;
  return `${name}: no results (status ${status})`;
}

/** The real-systemd tiers run as an unprivileged user in a private host. */
async function hostTier(name) {
  const inside = `export PATH=/opt/outlive/node_modules/.bin:$PATH
    node node_modules/vitest/vitest.mjs run --project ${name} --configLoader native --cache=false --reporter=default --reporter=json --outputFile.json="$HOME/report.json"
    status=$?; echo; echo ${MARK}; cat "$HOME/report.json"; exit $status`;
  const { status, text } = await run(
    path.join(root, 'ops/scripts/host'),
    ['run', '--', 'sh', '-c', inside],
    true,
  );
  if (status === NOT_POSSIBLE_HERE) return notPossible(name);
  const report = readReport(text.split(MARK).at(-1) ?? '');
  if (report) return add(name, report, status);
  counted.failed += 1;
  return `${name}: no results (status ${status})`;
}

/** A slice of the chaos suite: the same rounds each time, as many as fit into three minutes. */
async function chaosSlice() {
  const args = ['test/chaos/main.ts', '--seed', '1', '--minutes', '3'];
  const { status, text } = await run(bin('node'), args, true);
  if (status === NOT_POSSIBLE_HERE) return notPossible('chaos');
  const [, passed, failed] = /(\d+) passed, (\d+) failed\s*$/.exec(text) ?? [];
  if (passed === undefined || Number(passed) + Number(failed) === 0) {
    counted.failed += 1;
    return `chaos: no results (status ${status})`;
  }
  counted.passed += Number(passed);
  counted.failed += Number(failed);
  return `chaos: ${passed} passed, ${failed} failed`;
}

/** A failure in CI, a skip that is told elsewhere. */
function notPossible(name) {
  if (IN_CI) counted.failed += 1;
  else
    counted.skipped.push(`${name}: no root and no user manager here (see ops/scripts/host --help)`);
  return `${name}: not possible here${IN_CI ? ', which is a failure in CI' : ''}`;
}

const STEPS = {
  format: () => check('format and lint (biome)', bin('biome'), ['check', '.']),
  types: () => check('types (tsc)', bin('tsc'), ['-p', 'tsconfig.json']),
  lint: async () =>
    [
      await check('typed lint (oxlint)', bin('oxlint'), ['--deny-warnings']),
      await check('fault points', bin('node'), ['ops/scripts/check-faults.mjs']),
    ].join('\n'),
  imports: () => check('import directions', bin('node'), ['ops/scripts/check-imports.mjs']),
  unused: () => check('unused code (knip)', bin('knip'), ['--no-progress']),
  docs: () => check('generated documentation', bin('node'), ['ops/scripts/docs.mjs', '--check']),
  unit: () => tier('unit'),
  property: () => tier('property'),
  store: () => tier('store'),
  attempt: () => tier('attempt'),
  pi: () => tier('pi'),
  api: () => tier('api'),
  cli: () => tier('cli'),
  direct: () => tier('direct'),
  host: () => tier('host'),
  systemd: () => hostTier('systemd'),
  chaos: () => chaosSlice(),
};

const names = process.argv.slice(2);
if (names.includes('--list')) {
  console.log(Object.keys(STEPS).join('\n'));
  process.exit(0);
}
const unknown = names.filter((name) => !(name in STEPS));
if (unknown.length > 0) {
  console.error(
    `check: no step ${unknown.join(', ')}; there are: ${Object.keys(STEPS).join(', ')}`,
  );
  process.exit(2);
}

const lines = [];
for (const name of names.length > 0 ? names : Object.keys(STEPS)) {
  console.log(`\n--- ${name}`);
  const began = Date.now();
  lines.push(`${await STEPS[name]()}  [${Math.round((Date.now() - began) / 1000)} s]`);
}
rmSync(scratch, { recursive: true, force: true });
console.log(`\n${lines.join('\n')}`);
for (const skip of counted.skipped) console.log(`skipped: ${skip}`);
console.log(`\n${counted.passed} passed, ${counted.failed} failed`);
process.exit(counted.failed === 0 ? 0 : 1);
