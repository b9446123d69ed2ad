/** The command line of `outlive driver add`, as the specification it stands for. */
import { accessSync, constants, readFileSync } from 'node:fs';
import path from 'node:path';
import type { DriverSpecInput } from '../api/schemas-drivers.ts';
import { driverSpecSchema } from '../api/schemas-drivers.ts';
import { OutliveError } from '../domain/errors.ts';
import type { LeftoverPolicy } from '../domain/outcome.ts';
import type { SandboxMode } from '../domain/sandbox.ts';
import { parseDuration } from './duration.ts';
import { parseMoney, parseTokens } from './run-input.ts';

export interface AddOptions {
  readonly census: string;
  readonly censusTimeout?: string;
  readonly every?: string;
  readonly jitter?: string;
  readonly run?: string;
  readonly prompt?: string;
  readonly promptFile?: string;
  readonly model?: string;
  readonly handleFrom?: string;
  readonly verify?: string;
  readonly verifyTimeout?: string;
  readonly output?: readonly string[];
  readonly resultSchema?: string;
  readonly leftovers?: LeftoverPolicy;
  readonly hardTimeout?: string;
  readonly cwd?: string;
  readonly priority?: string;
  readonly maxAtOnce?: string;
  readonly env?: readonly string[];
  readonly envFile?: readonly string[];
  readonly toolPolicy?: string;
  readonly sandbox?: SandboxMode;
  readonly maxCost?: string;
  readonly maxTokens?: string;
  readonly replace?: boolean;
  readonly json?: boolean;
}

const usage = (detail: string): OutliveError => new OutliveError('usage', detail);
const shell = (command: string): string[] => ['sh', '-c', command];

/** Leaves out what was not given. */
const given = <Value, Field>(
  name: string,
  value: Value | undefined,
  use: (value: Value) => Field,
): Record<string, Field> => (value === undefined ? {} : { [name]: use(value) });
const same = <Value>(value: Value): Value => value;

function wholeNumber(option: string): (text: string) => number {
  return (text) => {
    if (/^-?\d{1,9}$/.test(text)) return Number(text);
    throw usage(`${option} "${text}" is not a whole number.`);
  };
}

/** Paths are meant from here; the daemon is somewhere else. */
function promptFile(file: string): string {
  const found = path.resolve(file);
  try {
    accessSync(found, constants.R_OK);
  } catch (error) {
    throw usage(`--prompt-file cannot be read: ${(error as Error).message}.`);
  }
  return found;
}

function jsonOf(option: string): (text: string) => unknown {
  return (text) => {
    try {
      return JSON.parse(text.trimStart().startsWith('{') ? text : readFileSync(text, 'utf8'));
    } catch (error) {
      throw usage(`${option} is no JSON, and no file with it: ${(error as Error).message}.`);
    }
  };
}

function variables(texts: readonly string[]): Record<string, string> {
  const entries = texts.map((text): [string, string] => {
    const equals = text.indexOf('=');
    if (equals > 0) return [text.slice(0, equals), text.slice(equals + 1)];
    throw usage(`--env "${text}" is not NAME=VALUE.`);
  });
  return Object.fromEntries(entries);
}

const variableFile = (file: string): string =>
  file.startsWith('-') ? `-${path.resolve(file.slice(1))}` : path.resolve(file);

function runOf({ run, prompt, promptFile: file, model }: AddOptions): object {
  if ([run, prompt, file].filter((one) => one !== undefined).length !== 1)
    throw usage('Give one of --run, --prompt and --prompt-file: it is what a subject gets.');
  return {
    ...given('argv', run, shell),
    ...given('prompt', prompt, same),
    ...given('promptFile', file, promptFile),
    ...given('model', model, same),
  };
}

function outcomeOf(options: AddOptions): object {
  const { verify, verifyTimeout, output, resultSchema } = options;
  if (verifyTimeout !== undefined && verify === undefined)
    throw usage('--verify-timeout is for --verify.');
  const outcome = {
    ...given('verify', verify, (command) => ({
      argv: shell(command),
      ...given('timeoutMs', verifyTimeout, parseDuration),
    })),
    ...given('outputs', output, same),
    ...given('result', resultSchema, (text) => ({ schema: jsonOf('--result-schema')(text) })),
  };
  return Object.keys(outcome).length === 0 ? {} : { outcome };
}

function ceilingOf({ maxCost, maxTokens }: AddOptions): object {
  const ceiling = {
    ...given('maxCostUsd', maxCost, parseMoney),
    ...given('maxTokens', maxTokens, parseTokens),
  };
  return Object.keys(ceiling).length === 0 ? {} : { spendCeiling: ceiling };
}

/**
 * The specification for these options; paths are meant from the current directory.
 * @throws OutliveError `usage`, naming the option that is wrong.
 */
export function buildSpec(options: AddOptions): DriverSpecInput {
  const spec = {
    census: {
      argv: shell(options.census),
      ...given('timeoutMs', options.censusTimeout, parseDuration),
    },
    run: runOf(options),
    cwd: path.resolve(options.cwd ?? '.'),
    ...given('every', options.every, parseDuration),
    ...given('jitter', options.jitter, parseDuration),
    ...given('handleFrom', options.handleFrom, same),
    ...outcomeOf(options),
    ...given('leftovers', options.leftovers, same),
    ...given('hardTimeoutMs', options.hardTimeout, parseDuration),
    ...given('priority', options.priority, wholeNumber('--priority')),
    ...given('maxAtOnce', options.maxAtOnce, wholeNumber('--max-at-once')),
    ...given('environment', options.env, variables),
    ...given('environmentFiles', options.envFile, (files) => files.map(variableFile)),
    ...given('toolPolicy', options.toolPolicy, jsonOf('--tool-policy')),
    ...given('sandbox', options.sandbox, same),
    ...ceilingOf(options),
  };
  const parsed = driverSpecSchema.safeParse(spec);
  if (parsed.success) return parsed.data;
  const said = parsed.error.issues.map((issue) => `${optionOf(issue.path)}: ${issue.message}`);
  throw usage(`${said.join('; ')}.`);
}

const OPTION_OF_FIELD: Readonly<Record<string, string>> = {
  'census.argv': '--census',
  'census.timeoutMs': '--census-timeout',
  'run.argv': '--run',
  'run.prompt': '--prompt',
  'run.promptFile': '--prompt-file',
  'run.model': '--model',
  'outcome.verify': '--verify',
  'outcome.outputs': '--output',
  'outcome.result': '--result-schema',
  every: '--every',
  jitter: '--jitter',
  handleFrom: '--handle-from',
  hardTimeoutMs: '--hard-timeout',
  cwd: '--cwd',
  priority: '--priority',
  maxAtOnce: '--max-at-once',
  environment: '--env',
  environmentFiles: '--env-file',
  toolPolicy: '--tool-policy',
  spendCeiling: '--max-cost or --max-tokens',
};

function optionOf(at: readonly PropertyKey[]): string {
  const [first = '', second = ''] = at.map(String);
  return OPTION_OF_FIELD[`${first}.${second}`] ?? OPTION_OF_FIELD[first] ?? first;
}
