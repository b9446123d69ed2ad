// docs.mjs           writes docs/reference.md from the code
// docs.mjs --check   changes nothing; exit 1 when docs/reference.md is not what the code says,
//                    when docs/checklist.md names a test that is not there, or when a link is broken
//   --root DIR       another tree than this checkout for docs/, test/ and README.md
//
// Reads the TypeScript sources, not dist/: a build that is older than the code cannot mislead it.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { Frame } from '../../src/commands/context.ts';
import { outcomeExitCode } from '../../src/commands/exit-code.ts';
import { buildProgram } from '../../src/commands/list.ts';
import { configFileSchema } from '../../src/config.ts';
import { RULES } from '../../src/domain/classify.ts';
import { ERRORS, EXIT } from '../../src/domain/errors.ts';
import * as vocabulary from '../../src/domain/events.ts';
import { OUTCOME_REASONS } from '../../src/domain/outcome.ts';
import { CANCELLATIONS, FAILURES, LOSSES, RESUME_BLOCKS } from '../../src/domain/outcome-codes.ts';
import { allCells } from '../../src/domain/states.ts';
import { defaultTimeouts, WORK_UNIT_KINDS } from '../../src/domain/work-unit.ts';
import { VERSION } from '../../src/version.ts';
import { CONFIG_MEANINGS } from './lib/config-meanings.mjs';
import { EVENT_MEANINGS } from './lib/event-meanings.mjs';

const checkout = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const REFERENCE = 'docs/reference.md';
const CHECKLIST = 'docs/checklist.md';
const COMMAND = 'node ops/scripts/docs.mjs';

// --- What the code cannot say itself: one line each, and none may be missing -------------------

const EXIT_MEANINGS = {
  ok: 'done; for `run`: the work succeeded',
  failed: 'it failed, or outlive could not do it',
  usage: 'the command line, the request or the configuration is wrong',
  notFound: 'there is no such work unit',
  unreachable: 'the daemon, its store or systemd cannot be reached',
  conflict: 'something else has the handle, the key, the state or the workspace',
  timeout: '`run`: a timeout ended the work',
  cancelled: '`run`: the work was cancelled, or Ctrl-C detached',
};

/** The table's lines for exactly these names; a missing or surplus one is an error. */
function meanings(what, table, names) {
  const missing = names.filter((name) => !Object.hasOwn(table, name));
  const surplus = Object.keys(table).filter((name) => !names.includes(name));
  if (missing.length + surplus.length === 0) return table;
  const say = (word, list) => (list.length > 0 ? ` ${word}: ${list.join(', ')}.` : '');
  throw new Error(`docs.mjs: ${what}.${say('No line for', missing)}${say('Unknown', surplus)}`);
}

const read = (root, file) => {
  const full = path.join(root, file);
  return existsSync(full) ? readFileSync(full, 'utf8') : null;
};

// --- docs/reference.md ---------------------------------------------------------------------------

const code = (text) => `\`${text}\``;
const cell = (text) => String(text).replaceAll('|', '\\|').replaceAll('\n', ' ');

function table(head, rows) {
  const line = (cells) => `| ${cells.map(cell).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/** Events down, states across. Reasons of "stay" are numbered below the table. */
function stateTable(cells) {
  const states = [...new Set(cells.map(({ from }) => from))];
  const events = [...new Set(cells.map(({ event }) => event))];
  const reasons = [];
  const noteOf = (reason) => {
    if (!reasons.includes(reason)) reasons.push(reason);
    return reasons.indexOf(reason) + 1;
  };
  const show = (entry) => {
    if (entry.kind === 'move') return `→ ${entry.to}`;
    return entry.kind === 'stay' ? `stay (${noteOf(entry.reason)})` : '·';
  };
  const find = (from, event) => cells.find((one) => one.from === from && one.event === event).cell;
  const rows = events.map((event) => [
    code(event),
    ...states.map((from) => show(find(from, event))),
  ]);
  const notes = reasons.map((reason, index) => `${index + 1}. ${reason}`).join('\n');
  return `${table(['event', ...states], rows)}\n\nReasons to stay:\n\n${notes}`;
}

function states() {
  const { workUnits, attempts } = allCells();
  return `Events down, states across. \`→\` moves, \`stay\` changes nothing for the reason given below the
table, \`·\` is refused with \`state_conflict\` and writes nothing.

### Work units

${stateTable(workUnits)}

### Attempts

${stateTable(attempts)}`;
}

function rules() {
  const rows = RULES.map(({ number, when }) => [number, when]);
  return `Decided from the evidence alone; the first rule that fits wins. The number is stored with the
attempt as \`decidedByRule\`.

${table(['rule', 'when'], rows)}`;
}

function outcomes() {
  const rows = (codes) => Object.entries(codes).map(([name, sentence]) => [code(name), sentence]);
  const withExit = (codes, status) =>
    Object.keys(codes).map((name) => [code(name), codes[name], outcomeExitCode(status, name)]);
  return `\`errorCode\` of a work unit and of an attempt; the last column is the exit status of \`outlive run\`.

### Failed

${table(['code', 'meaning', 'exit'], withExit(FAILURES, 'failed'))}

### Cancelled

${table(['code', 'meaning', 'exit'], withExit(CANCELLATIONS, 'cancelled'))}

### Lost (attempts only)

${table(['code', 'meaning'], rows(LOSSES))}

Codes of a work unit that was lost and waits for a person (\`outlive retry\` goes on):

${table(['code', 'meaning'], rows(RESUME_BLOCKS))}

### Declared outcomes

\`outcome.code\` of work that declared what it must leave behind, where its \`outcome.state\` is not
\`satisfied\`: \`blocked\`, \`refuted\` or \`skipped\`. The process's own status stays what it was.

${table(['code', 'meaning'], rows(OUTCOME_REASONS))}`;
}

function errors() {
  const rows = Object.entries(ERRORS).map(([name, { status, exit, title }]) => [
    code(name),
    ...[status, exit, title],
  ]);
  return `Refusals. The API answers \`application/problem+json\` with this \`code\`; the command line exits with
the status in the third column.

${table(['code', 'HTTP', 'exit', 'title'], rows)}`;
}

/** Text of the parts that write events. */
function writersText() {
  const rooms = ['attempt', 'supervisor', 'recovery', 'linear'].map((room) =>
    path.join('src', room),
  );
  const filesOf = (room) => readdirSync(path.join(checkout, room));
  return rooms
    .flatMap((room) => filesOf(room).map((file) => read(checkout, path.join(room, file))))
    .join('\n');
}

function events() {
  const { DAEMON_EVENT_TYPES, EVENT_TYPES, PROGRESS_EVENT_TYPES } = vocabulary;
  const lines = meanings('event types', EVENT_MEANINGS, EVENT_TYPES);
  const written = writersText();
  const yes = (types, type) => (types.has(type) ? 'yes' : '');
  const rows = EVENT_TYPES.map((type) => {
    const by = DAEMON_EVENT_TYPES.includes(type) ? 'daemon' : 'wrapper';
    const marks = [yes(PROGRESS_EVENT_TYPES, type), yes(vocabulary.TERMINAL_EVENT_TYPES, type)];
    return [code(type), written.includes(`'${type}'`) ? by : 'reserved', lines[type], ...marks];
  });
  return `Who writes it: the daemon, or the wrapper inside the unit; a reserved type is part of the vocabulary
and not written yet. Progress moves the idle clock; nothing else does. After a terminal event
a work unit says nothing more but \`outcome.settled\`, unless somebody retries it.

${table(['type', 'by', 'meaning', 'progress', 'terminal'], rows)}`;
}

function exits() {
  const lines = meanings('exit codes', EXIT_MEANINGS, Object.keys(EXIT));
  const rows = Object.entries(EXIT).map(([name, status]) => [status, lines[name]]);
  return table(['exit', 'meaning'], rows);
}

const duration = (ms) => (ms % 60_000 === 0 ? `${ms / 60_000} min` : `${ms / 1000} s`);

function timeouts() {
  const names = Object.keys(defaultTimeouts(WORK_UNIT_KINDS[0]));
  const rows = WORK_UNIT_KINDS.map((kind) => {
    const policy = defaultTimeouts(kind);
    return [code(kind), ...names.map((name) => duration(policy[name]))];
  });
  return `A request may set each one in \`timeoutPolicy\`, in milliseconds.

${table(['kind', ...names.map(code)], rows)}`;
}

/** Every `--help`, at a fixed width, without colours, and as nobody in particular. */
function commands() {
  let text = '';
  const write = async (more) => {
    text += more;
  };
  const visit = (command, name) => {
    command.configureOutput({ getOutHelpWidth: () => 80, getOutHasColors: () => false });
    text = '';
    command.outputHelp();
    const own = `### ${name}\n\n\`\`\`text\n${text.trimEnd()}\n\`\`\``;
    return [own, ...command.commands.flatMap((inner) => visit(inner, `${name} ${inner.name()}`))];
  };
  const frame = new Frame({ env: {}, stdout: { write }, stderr: { write }, entries: '/' });
  return visit(buildProgram(VERSION, frame), 'outlive').join('\n\n');
}

/** Keys of config.json with what the schema says of each; objects with fixed keys are walked into. */
function configKeys(schema, prefix = '') {
  return Object.entries(schema.properties).flatMap(([name, inner]) => {
    const key = `${prefix}${name}`;
    return inner.properties ? configKeys(inner, `${key}.`) : [{ key, inner }];
  });
}

const mapOf = ({ type }) =>
  type === 'string' || type === 'integer' ? `map of ${type}s` : 'map of objects';

function typeOf({ anyOf, type, items, additionalProperties }) {
  if (anyOf) return anyOf.map(typeOf).join(' or ');
  if (type === 'array') return `list of ${items.type === 'object' ? 'object' : typeOf(items)}s`;
  if (type === 'object') return mapOf(additionalProperties ?? {});
  return type;
}

const defaultOf = ({ default: value }) =>
  value === undefined ? 'absent' : code(JSON.stringify(value));

function configuration() {
  const keys = configKeys(z.toJSONSchema(configFileSchema, { io: 'input' }));
  const names = keys.map(({ key }) => key);
  const lines = meanings('keys of config.json', CONFIG_MEANINGS, names);
  const rows = keys.map(({ key, inner }) => [
    code(key),
    typeOf(inner),
    defaultOf(inner),
    lines[key],
  ]);
  return `\`$XDG_CONFIG_HOME/outlive/config.json\`, a JSON object. Every key may be absent; an unknown key is an
error that names it. A dot is one level of nesting.

${table(['key', 'type', 'default', 'meaning'], rows)}`;
}

const SECTIONS = {
  'States and transitions': states,
  'How an end is decided': rules,
  'Outcome codes': outcomes,
  Errors: errors,
  'Event types': events,
  'Exit codes': exits,
  'Default timeouts': timeouts,
  'config.json': configuration,
  Commands: commands,
};

function reference() {
  const sections = Object.entries(SECTIONS).map(([title, make]) => `## ${title}\n\n${make()}\n`);
  const head = `# Reference\n\nGenerated from the code by \`${COMMAND}\`; do not edit.\n`;
  return [head, ...sections].join('\n');
}

// --- The checks ------------------------------------------------------------------------------------

/** The first line that differs, as it is and as it should be. */
function checkReference(root, wanted) {
  const found = read(root, REFERENCE);
  if (found === wanted) return [];
  if (found === null) return [`${REFERENCE} is missing; ${COMMAND} writes it`];
  const [is, should] = [found.split('\n'), wanted.split('\n')];
  const at = should.findIndex((line, index) => line !== is[index]);
  const line = at === -1 ? should.length : at;
  return [
    `${REFERENCE}:${line + 1} is not what the code says; ${COMMAND} writes it anew`,
    `  - ${is[line] ?? '(end of file)'}`,
    `  + ${should[line] ?? '(end of file)'}`,
  ];
}

const STAGES = [
  'main line',
  'durable core',
  'recovery',
  'approvals and sandbox',
  'Linear agent',
  'outcomes and drivers',
  'channels and dashboard',
  'packaging and operations',
  'guards',
];
const upTo = (count, width) =>
  Array.from({ length: count }, (_, index) => String(index + 1).padStart(width, '0'));
const ROW_NUMBERS = [...upTo(354, 3), ...upTo(29, 2).map((number) => `X${number}`)];

/**
 * @typedef {{ at: string, file: string, title: string }} Proof
 * @typedef {{ at: string, state: string, number: string, says: string, proofs: Proof[], owed: string[] }} Row
 */
const ROW = /^- \[([ x~-])\] \*\*(\d{3}|X\d{2})\*\* (.+)$/;
const PEER = /^- \*\*(T\d{2})\*\* (.+)$/;
const PROOF = /^ {2}- `([^`]+)`: `(.+)`$/;
const OWED = /^ {2}- owed: (.+)$/;
/** A test, or a step of the checks for what a test cannot show. */
const WITNESS = /^(test\/.+\.test\.ts|ops\/scripts\/check\.mjs)$/;

/** Rows, each with the lines below it. */
function parseChecklist(text, problem) {
  /** @type {Row[]} */
  const rows = [];
  for (const [index, line] of text.split('\n').entries()) {
    const at = `${CHECKLIST}:${index + 1}`;
    const row = ROW.exec(line) ?? PEER.exec(line)?.toSpliced(1, 0, 'peer');
    const [proof, owed, last] = [PROOF.exec(line), OWED.exec(line), rows.at(-1)];
    if (row) {
      const [, state = '', number = '', says = ''] = row;
      rows.push({ at, state, number, says, proofs: [], owed: [] });
    } else if (proof && last) {
      last.proofs.push({ at, file: proof[1] ?? '', title: proof[2] ?? '' });
    } else if (owed && last) {
      last.owed.push(owed[1] ?? '');
    } else if (/^\s*- (\[|`test\/|owed)|^- \*\*/.test(line)) {
      problem(`${at}: not a row, a test or a debt as the head of the file describes them`);
    }
  }
  return rows;
}

const startsWithStage = (text) => STAGES.some((stage) => text.startsWith(stage));
const areStages = (text) => text.split(', ').every((name) => STAGES.includes(name));

/** What is wrong with a row by itself; its tests are looked up elsewhere. */
function rowProblems({ state, number, says, proofs, owed }) {
  const [sentence, tail = ''] = says.split(' → ');
  const isProved = ['x', '~', 'peer'].includes(state);
  const isCarried = state !== 'peer' || proofs.every(({ title }) => title.includes(number));
  const faults = {
    'is not a sentence': !/[.:]$/.test(sentence),
    'names no test': isProved && proofs.length === 0,
    'names a test but is not ticked': !isProved && proofs.length > 0,
    'names a test that does not carry its number': !isCarried,
    'is partial but no stage owes the rest': state === '~' && !owed.some(startsWithStage),
    'owes something but is not partial': state !== '~' && owed.length > 0,
    'does not end in "→" and the stages that owe it': state === ' ' && !areStages(tail),
    'does not end in "→ refused:" and why': state === '-' && !/^refused: ./.test(tail),
  };
  return Object.keys(faults).filter((fault) => faults[fault]);
}

/** Source texts in which the title may stand, as a pattern. */
function literal(title) {
  const forms = ["'", '"', '`'].map(
    (quote) => quote + title.replaceAll('\\', '\\\\').replaceAll(quote, `\\${quote}`) + quote,
  );
  return `(?:${forms.map((form) => RegExp.escape(form)).join('|')})`;
}

/** A test file, with the tables of cases that it shares with others and gets from test/support. */
function sourceOf(root, file) {
  const own = read(root, file);
  if (own === null) return null;
  const tables = own.matchAll(/ from '(\.\.\/support\/conformance-[\w-]+\.ts)'/g);
  const shared = Array.from(tables, ([, table]) =>
    read(root, path.posix.join(path.posix.dirname(file), table)),
  );
  return [own, ...shared].join('\n');
}

/** Null when the file holds the test `suite › title`, else what is wrong. */
function proofProblem(source, title) {
  const parts = title.split(' › ');
  for (const [index, part] of parts.entries()) {
    const quoted = literal(part);
    if (new RegExp(`\\.(skip|todo|fails)\\(\\s*${quoted}`).test(source)) return 'is not run';
    // Under a suite the title may come from a table of cases.
    const isCase = index > 0 && index === parts.length - 1;
    const place = isCase ? quoted : `\\(\\s*${quoted}\\s*,`;
    if (!new RegExp(place).test(source)) return 'is not in that file';
  }
  return null;
}

/** Numbers of peer cases that titles of tests carry, each with its file. */
function carriedPeerCases(root) {
  const directory = path.join(root, 'test');
  if (!existsSync(directory)) return [];
  const files = readdirSync(directory, { recursive: true }).filter((f) => f.endsWith('.test.ts'));
  return files.flatMap((file) => {
    const found = read(directory, file).matchAll(/\b(T\d{2}) [\w -]*#\d/g);
    return Array.from(found, ([, number]) => ({ number, file: `test/${String(file)}` }));
  });
}

function checkChecklist(root) {
  const problems = [];
  const problem = (text) => problems.push(text);
  const text = read(root, CHECKLIST);
  if (text === null) return [`${CHECKLIST} is missing`];
  const rows = parseChecklist(text, problem);
  const count = (number) => rows.filter((row) => row.number === number).length;
  for (const number of ROW_NUMBERS) {
    if (count(number) !== 1) problem(`${CHECKLIST}: row ${number} is there ${count(number)} times`);
  }
  for (const row of rows) {
    const isKnown = row.state === 'peer' || ROW_NUMBERS.includes(row.number);
    if (!isKnown) problem(`${row.at}: there is no row ${row.number}`);
    for (const fault of rowProblems(row)) problem(`${row.at}: ${row.number} ${fault}`);
    for (const { at, file, title } of row.proofs) {
      const source = WITNESS.test(file) ? sourceOf(root, file) : null;
      const wrong = source === null ? 'is in no test file' : proofProblem(source, title);
      if (wrong) problem(`${at}: the test of ${row.number} ${wrong}: ${file}: ${title}`);
    }
  }
  for (const { number, file } of carriedPeerCases(root)) {
    const proofs = rows.filter((row) => row.number === number).flatMap((row) => row.proofs);
    if (!proofs.some((proof) => proof.file === file))
      problem(`${CHECKLIST}: ${file} has a test for ${number} that is not listed`);
  }
  return problems;
}

/** Relative links of README.md and docs/*.md that lead nowhere. */
function checkLinks(root) {
  const pages = readdirSync(path.join(root, 'docs')).filter((file) => file.endsWith('.md'));
  return ['README.md', ...pages.map((file) => `docs/${file}`)].flatMap((page) => {
    const text = read(root, page);
    if (text === null) return [`${page} is missing`];
    const prose = text.replace(/^```.*?^```/gms, '').replace(/`[^`\n]*`/g, '');
    const links = prose.matchAll(/\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)/gm);
    const targets = Array.from(links, ([, inline, defined]) => inline ?? defined);
    return targets
      .filter((target) => !/^([a-z][a-z0-9+.-]*:|#|\/\/)/i.test(target))
      .filter((target) => {
        const file = decodeURIComponent(target.replace(/[#?].*/, ''));
        const full = path.join(root, path.dirname(page), file);
        return !full.startsWith(root) || !existsSync(full);
      })
      .map((target) => `${page}: the link ${target} leads nowhere`);
  });
}

// --- The command -----------------------------------------------------------------------------------

const { values } = parseArgs({
  options: { check: { type: 'boolean', default: false }, root: { type: 'string' } },
});
const root = path.resolve(values.root ?? checkout);
const wanted = reference();
if (values.check) {
  const problems = [...checkReference(root, wanted), ...checkChecklist(root), ...checkLinks(root)];
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length === 0 ? 0 : 1;
} else {
  mkdirSync(path.join(root, 'docs'), { recursive: true });
  writeFileSync(path.join(root, REFERENCE), wanted);
}
