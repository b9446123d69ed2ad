// Import directions and the few house rules that are about text, not types.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
process.chdir(root);

const sources = readdirSync('src', { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  .map((entry) => path.join(entry.parentPath, entry.name));
const problems = [];

const cruise = spawnSync(
  process.execPath,
  [
    'node_modules/dependency-cruiser/bin/dependency-cruiser.mjs',
    'src',
    '--config',
    '.dependency-cruiser.cjs',
    '-T',
    'json',
  ],
  { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
);
const { modules, summary } = JSON.parse(cruise.stdout);
const seen = modules.filter((module) => module.source.startsWith('src/')).length;
const edges = modules
  .flatMap((module) => module.dependencies)
  .filter((edge) => edge.resolved.startsWith('src/')).length;
if (seen < sources.length)
  problems.push(`the cruiser saw ${seen} of ${sources.length} modules: it proves nothing`);
if (edges < sources.length)
  problems.push(
    `the cruiser saw ${edges} imports between ${sources.length} modules: it proves nothing`,
  );
for (const { rule, from, to, cycle } of summary.violations) {
  const path = cycle ? cycle.map((step) => step.name ?? step).join(' -> ') : to;
  problems.push(`${rule.name}: ${from} -> ${path}`);
}

/** One reader of the environment for the daemon and the commands, one for the wrapper. */
const ENVIRONMENT_READERS = new Set([
  'src/config.ts',
  'src/main.ts',
  'src/cli.ts',
  'src/attempt/main.ts',
]);
for (const file of sources) {
  if (ENVIRONMENT_READERS.has(file)) continue;
  const line = readFileSync(file, 'utf8')
    .split('\n')
    .findIndex((text) => /\bprocess\.env\b/.test(text.replace(/^\s*(\/\/|\*|\/\*).*/, '')));
  if (line !== -1)
    problems.push(
      `process.env is read in ${file}:${line + 1}; only ${[...ENVIRONMENT_READERS].join(', ')} may`,
    );
}

/** The writer applies the state tables; nobody else may move a row to another state (row 015). */
for (const file of sources) {
  if (file === 'src/supervisor/writer.ts') continue;
  const line = readFileSync(file, 'utf8')
    .split('\n')
    .findIndex((text) => /\.(workUnits|attempts)\.move\(/.test(text));
  if (line !== -1) problems.push(`a state is changed in ${file}:${line + 1}; only the writer may`);
}

/** Nobody but the lock itself names its file: a client cannot write it, nothing takes it for more (rows 007, 008). */
for (const file of sources) {
  if (file === 'src/store/runtime-lock.ts') continue;
  const line = readFileSync(file, 'utf8')
    .split('\n')
    .findIndex((text) => /\bruntime\.lock\b/.test(text.replace(/^\s*(\/\/|\*|\/\*).*/, '')));
  if (line !== -1)
    problems.push(`runtime.lock is named in ${file}:${line + 1}; only the runtime lock may`);
}

for (const problem of problems) console.error(problem);
console.log(`${seen} modules, ${edges} imports, ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
