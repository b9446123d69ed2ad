// Between what is committed and what is done outside the store, the daemon may die: a fault point must stand there, so
// that a test can make it die there. The rule, and what it cannot see, is in CONTRIBUTING.md, "Fault points".
//   check-faults.mjs [DIRECTORY…]   default: src/supervisor src/recovery
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from '@swc/core';

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const DIRECTORIES = ['src/supervisor', 'src/recovery'];
/** Methods of the executor that change something outside; the others read. */
const EXECUTOR_ACTS = new Set(['start', 'stop', 'kill', 'release']);
/** Of node:fs/promises; reading is no act. */
const FILE_ACTS = new Set(['link', 'mkdir', 'rename', 'rm', 'unlink', 'writeFile']);
/** Functions that need none, and why. An entry that is needed no more is an error. */
const EXEMPT = {
  'src/supervisor/launch.ts afterStart':
    'the stored failure is carried out by whoever takes the attempt up; nothing is awaited in between',
  'src/supervisor/watch.ts awaitStart':
    'only the reason is committed; whoever takes the attempt up waits and takes it back again',
  'src/supervisor/watch.ts follow':
    'what is carried out was committed before, by others; who the unit is has no part in it',
  'src/supervisor/collect.ts run':
    'rows and files of one work unit are compacted in compact.ts; these are of no work unit any more',
};

const COMMIT = 'commit';
const ACT = 'act';
const FAULT = 'fault';

/** `this.context.writer.commit` as ['this', 'context', 'writer', 'commit']; [] for what is no plain path. */
function pathOf(node) {
  if (node.type === 'Identifier') return [node.value];
  if (node.type === 'ThisExpression') return ['this'];
  if (node.type === 'OptionalChainingExpression') return pathOf(node.base);
  if (node.type !== 'MemberExpression' || node.property.type !== 'Identifier') return [];
  const object = pathOf(node.object);
  return object.length === 0 ? [] : [...object, node.property.value];
}

/** What a call is by itself, before anybody looks into the called function. */
function effectOf(callee) {
  const names = pathOf(callee);
  const last = names.at(-1);
  const owner = names.at(-2);
  if (last === 'commit' && names.length > 1) return COMMIT;
  if (last === 'fault') return FAULT;
  if (owner === 'executor' && EXECUTOR_ACTS.has(last)) return ACT;
  if (names.length === 1 && FILE_ACTS.has(last)) return ACT;
  return null;
}

const isFunction = (node) =>
  node?.type === 'ArrowFunctionExpression' || node?.type === 'FunctionExpression';

/** Collects the functions of a file, and for each what it does in the order of its text. */
class Reader {
  constructor(file, text, base) {
    this.file = file;
    this.text = Buffer.from(text);
    this.base = base;
    this.functions = [];
    this.imports = new Map();
    /** `const claimNext = createClaimer(…)`: calling the first runs what the second returned. */
    this.made = new Map();
  }

  at(node) {
    return this.text
      .subarray(0, node.span.start - this.base)
      .toString()
      .split('\n').length;
  }

  define(name, node, body) {
    const found = { name, file: this.file, line: this.at(node), steps: [] };
    this.functions.push(found);
    this.visit(body, found);
  }

  /** Depth first, in the order of the text; `owner` is the function whose steps these are. */
  visit(node, owner) {
    if (node === null || typeof node !== 'object') return;
    if (Array.isArray(node)) {
      for (const item of node) this.visit(item, owner);
      return;
    }
    switch (node.type) {
      case 'ImportDeclaration':
        for (const { local, imported } of node.specifiers) {
          if (node.source.value.startsWith('.')) {
            const from = path.join(path.dirname(this.file), node.source.value);
            this.imports.set(local.value, { from, name: imported?.value ?? local.value });
          }
        }
        return;
      case 'FunctionDeclaration':
        return this.define(node.identifier.value, node, node.body);
      case 'ClassMethod':
      case 'PrivateMethod':
        return this.define(node.key.value ?? node.key.id?.value, node, node.function.body);
      case 'VariableDeclarator':
        if (isFunction(node.init)) return this.define(node.id.value, node.init, node.init.body);
        if (node.init?.type === 'CallExpression') {
          this.made.set(node.id.value, pathOf(node.init.callee).at(-1));
        }
        break;
      case 'ReturnStatement':
        if (owner?.name && isFunction(node.argument)) {
          return this.define(`${owner.name}()`, node.argument, node.argument.body);
        }
        break;
      case 'KeyValueProperty':
        // A method of a returned object: part of nothing that runs here.
        if (isFunction(node.value)) return this.define(node.key.value, node.value, node.value.body);
        break;
      case 'MethodProperty':
        return this.define(node.key.value, node, node.body);
      case 'IfStatement':
        this.visit(node.test, owner);
        this.branch(node.consequent, owner);
        return this.branch(node.alternate, owner);
      case 'CatchClause':
        return this.branch(node.body, owner);
      case 'CallExpression':
        return this.call(node, owner);
    }
    for (const [key, value] of Object.entries(node)) {
      if (key !== 'span' && key !== 'type') this.visit(value, owner);
    }
  }

  /** What leads out of the function has no part in what follows it. */
  branch(node, owner) {
    const last = node?.type === 'BlockStatement' ? node.stmts.at(-1) : node;
    const leaves = last?.type === 'ReturnStatement' || last?.type === 'ThrowStatement';
    if (!leaves || !owner) return this.visit(node, owner);
    const aside = { steps: [] };
    this.visit(node, aside);
    owner.steps.push({ aside: aside.steps });
  }

  call(node, owner) {
    const effect = effectOf(node.callee);
    const names = pathOf(node.callee);
    this.visit(node.callee, owner);
    // What is inside a transaction is one step with it; a listener runs at another time.
    const inner = effect === COMMIT || names.at(-1)?.startsWith('on') ? [] : node.arguments;
    this.visit(inner, owner);
    if (!owner) return;
    const line = this.at(node);
    if (effect) owner.steps.push({ effect, line });
    else if (names.length === 1 || (names.length === 2 && names[0] === 'this')) {
      owner.steps.push({ calls: names.at(-1), line });
    }
  }
}

function read(file) {
  const text = readFileSync(path.resolve(ROOT, file), 'utf8');
  const module = parseSync(text, { syntax: 'typescript', target: 'es2024' });
  // swc counts positions over all files it parses; the first token may stand behind a comment.
  const skipped = Buffer.byteLength(/^(?:\s|\/\*[\s\S]*?\*\/|\/\/.*\n|#!.*\n)*/.exec(text)[0]);
  const reader = new Reader(file, text, module.span.start - skipped);
  reader.visit(module.body, null);
  return reader;
}

/** The steps of a function with those of the functions it calls in their place. */
function flatten(file, steps, readers, seen = []) {
  return steps.flatMap((step) => {
    if (step.effect) return [step];
    if (step.aside) return [{ aside: flatten(file, step.aside, readers, seen) }];
    const called = resolve(file, step.calls, readers);
    if (!called || seen.includes(called)) return [];
    const inner = flatten(called.file, called.steps, readers, [...seen, called]);
    return inner.map((one) => atLine(one, step.line));
  });
}

/** As seen by the caller: everything happens in the line of the call. */
const atLine = (step, line) =>
  step.aside ? { aside: step.aside.map((one) => atLine(one, line)) } : { ...step, line };

const effectsOf = (steps) =>
  steps.flatMap(({ effect, aside }) => (aside ? effectsOf(aside) : [effect]));

function resolve(file, name, readers) {
  const reader = readers.get(file);
  const maker = reader?.made.get(name);
  // `const dead = this.dead()` makes nothing but its own value.
  if (maker && maker !== name) {
    const made = resolve(file, maker, readers);
    return made ? named(readers.get(made.file), `${made.name}()`) : null;
  }
  const imported = reader?.imports.get(name);
  return (
    named(reader, name) ?? (imported ? named(readers.get(imported.from), imported.name) : null)
  );
}

const named = (reader, name) => reader?.functions.find((one) => one.name === name) ?? null;

/** The first act after a commit with no fault point between them, in two lines of this function. */
function firstGap(steps, commit = null) {
  let last = commit;
  for (const { effect, aside, line } of steps) {
    if (aside) {
      const gap = firstGap(aside, last);
      if (gap) return gap;
    } else if (effect === COMMIT) last = line;
    else if (effect === FAULT) last = null;
    // Where both are in one call, it is told of the called function.
    else if (last !== null && last !== line) return { commit: last, act: line };
  }
  return null;
}

const directories = process.argv.length > 2 ? process.argv.slice(2) : DIRECTORIES;
const files = directories.flatMap((directory) =>
  readdirSync(path.resolve(ROOT, directory), { recursive: true })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(directory, name)),
);
const readers = new Map(files.map((file) => [file, read(file)]));
const functions = [...readers.values()].flatMap((reader) => reader.functions);
const problems = [];
const exempted = new Set();
let judged = 0;
for (const found of functions) {
  const steps = flatten(found.file, found.steps, readers, [found]);
  const effects = effectsOf(steps);
  if (!effects.includes(COMMIT) || !effects.includes(ACT)) continue;
  judged += 1;
  const gap = firstGap(steps);
  if (!gap) continue;
  const name = `${found.file} ${found.name}`;
  exempted.add(name);
  if (EXEMPT[name]) continue;
  problems.push(
    `${found.file}:${gap.act}: ${found.name} acts here on what it committed in line ${gap.commit}, and no fault point stands between`,
  );
}
if (judged === 0)
  problems.push('no function commits and acts: the check sees nothing and proves nothing');
for (const name of Object.keys(EXEMPT)) {
  const [file] = name.split(' ');
  if (readers.has(file) && !exempted.has(name))
    problems.push(`${name} needs no exemption any more`);
}
for (const problem of problems) console.error(problem);
console.log(`${functions.length} functions, ${judged} commit and act, ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
