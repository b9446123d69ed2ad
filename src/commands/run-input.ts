/** The command line of `outlive run`, as the request it stands for. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { type StartWorkUnitInput, startWorkUnitSchema } from '../api/schemas.ts';
import { OutliveError } from '../domain/errors.ts';
import type { LeftoverPolicy, OutcomeContract } from '../domain/outcome.ts';
import { LEASE_TYPES, type LeaseRequest, type SubjectPolicy } from '../domain/resources.ts';
import type { LostPolicy } from '../domain/resume.ts';
import type { SandboxMode } from '../domain/sandbox.ts';
import type { ToolPolicyInput } from '../domain/tool-policy-schema.ts';
import { parseDuration } from './duration.ts';
import { readPrompt } from './prompt.ts';

export interface RunOptions {
  readonly runner: string;
  readonly handle?: string;
  readonly cwd?: string;
  readonly model?: string;
  readonly hardTimeout?: string;
  readonly maxCost?: string;
  readonly maxTokens?: string;
  readonly providerAttempts?: string;
  readonly preset?: string;
  readonly idempotencyKey?: string;
  readonly promptFile?: string;
  readonly priority?: string;
  readonly channel?: string;
  readonly subject?: string;
  readonly onNewer?: SubjectPolicy;
  /** False with --no-queue. */
  readonly queue?: boolean;
  readonly exclusive?: boolean;
  readonly onLost?: LostPolicy;
  readonly toolPolicy?: string;
  readonly sandbox?: SandboxMode;
  readonly verify?: string;
  readonly verifyTimeout?: string;
  readonly output?: readonly string[];
  readonly resultSchema?: string;
  readonly leftovers?: LeftoverPolicy;
  readonly env?: readonly string[];
  readonly envFile?: readonly string[];
  readonly lease?: readonly string[];
  readonly after?: readonly string[];
  readonly afterNeeded?: string;
  readonly dryRun?: boolean;
  readonly detach?: boolean;
  readonly cancelOnInterrupt?: boolean;
  readonly json?: boolean;
}

/** What of the process a request depends on. */
export interface Caller {
  readonly user: string;
  readonly cwd: () => string;
  /** Its own variables, for those that are passed on by name. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly readStdin: () => Promise<Uint8Array>;
}

const usage = (detail: string): OutliveError => new OutliveError('usage', detail);

/**
 * The request for these options and words.
 * @throws OutliveError `usage`, naming the option that is wrong.
 */
export async function buildRequest(
  words: readonly string[],
  options: RunOptions,
  caller: Caller,
): Promise<StartWorkUnitInput> {
  const common = commonFields(options, caller);
  const request: StartWorkUnitInput =
    options.runner === 'command'
      ? { ...common, runnerId: 'command', argv: commandWords(words, options) }
      : {
          ...common,
          runnerId: 'pi',
          prompt: await readPrompt({
            words,
            file: options.promptFile,
            readStdin: caller.readStdin,
          }),
          ...(options.model === undefined ? {} : { model: options.model }),
          ...(options.toolPolicy === undefined
            ? {}
            : { toolPolicy: readJson(options.toolPolicy, '--tool-policy') as ToolPolicyInput }),
        };
  refuseBadFields(request);
  return request;
}

function commonFields(options: RunOptions, caller: Caller) {
  const { handle, idempotencyKey, hardTimeout, priority, sandbox } = options;
  return {
    ownerId: caller.user,
    createdByClientId: 'cli',
    cwd: workTree(options.cwd, caller),
    ...(handle === undefined ? {} : { handle }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(priority === undefined ? {} : { priority: parsePriority(priority) }),
    ...(sandbox === undefined ? {} : { sandbox }),
    ...(hardTimeout === undefined
      ? {}
      : { timeoutPolicy: { hardTimeoutMs: parseDuration(hardTimeout) } }),
    ...providerFields(options),
    ...outcomeFields(options),
    ...resourceFields(options, caller),
    ...afterFields(options),
    ...environmentFields(options, caller),
  };
}

/** The JSON that an option gives, in a file or as it is. */
function readJson(given: string, option: string): unknown {
  const text = given.trimStart().startsWith('{') ? given : readText(given, option);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw usage(`${option} is not valid JSON: ${(error as Error).message}.`);
  }
}

function readText(file: string, option: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw usage(`${option} cannot be read: ${(error as Error).message}.`);
  }
}

/** What it must leave behind, and what it must not. */
function outcomeFields(options: RunOptions) {
  const { verify, verifyTimeout, output: outputs, resultSchema, leftovers } = options;
  if (verifyTimeout !== undefined && verify === undefined) {
    throw usage('--verify-timeout is for --verify.');
  }
  const timeout = verifyTimeout === undefined ? {} : { timeoutMs: parseDuration(verifyTimeout) };
  const outcome = {
    ...(verify === undefined ? {} : { verify: { argv: ['sh', '-c', verify], ...timeout } }),
    ...(outputs === undefined ? {} : { outputs: [...outputs] }),
    ...(resultSchema === undefined ? {} : { result: { schema: readSchema(resultSchema) } }),
  };
  return {
    ...(Object.keys(outcome).length === 0 ? {} : { outcome }),
    ...(leftovers === undefined ? {} : { leftovers }),
  };
}

type Schema = NonNullable<OutcomeContract['result']>['schema'];
const readSchema = (given: string): Schema => readJson(given, '--result-schema') as Schema;

/** Whose model it asks, how often when that fails, and for how much. */
function providerFields({ maxCost, maxTokens, providerAttempts, preset }: RunOptions) {
  const ceiling = {
    ...(maxCost === undefined ? {} : { maxCostUsd: parseMoney(maxCost) }),
    ...(maxTokens === undefined ? {} : { maxTokens: parseTokens(maxTokens) }),
  };
  return {
    ...(preset === undefined ? {} : { providerPresetId: preset }),
    ...(Object.keys(ceiling).length === 0 ? {} : { spendCeiling: ceiling }),
    ...(providerAttempts === undefined
      ? {}
      : { providerRetry: { maxAttempts: parseAttempts(providerAttempts) } }),
  };
}

/** US dollars, `2.50` or `$2.50`. */
export function parseMoney(text: string, option = '--max-cost'): number {
  const amount = /^\$?(\d{1,6}(?:\.\d{1,6})?)$/.exec(text)?.[1];
  if (amount !== undefined && Number(amount) > 0) return Number(amount);
  throw usage(`${option} "${text}" is not an amount of US dollars, as 2.50.`);
}

const THOUSANDS: Readonly<Record<string, number>> = { '': 1, k: 1_000, m: 1_000_000 };

/** `200000`, `200k`, `1.5m`. */
export function parseTokens(text: string, option = '--max-tokens'): number {
  const [, count, unit = ''] = /^(\d{1,9}(?:\.\d{1,3})?)([km]?)$/i.exec(text) ?? [];
  const tokens = Math.round(Number(count) * (THOUSANDS[unit.toLowerCase()] ?? 1));
  if (tokens > 0) return tokens;
  throw usage(`${option} "${text}" is not a number of tokens, as 200000, 200k or 1.5m.`);
}

function parseAttempts(text: string): number {
  if (/^[1-9]\d{0,2}$/.test(text)) return Number(text);
  throw usage(`--provider-attempts "${text}" is not a number from 1 to 999.`);
}

/** What it must hold, and what it does when it cannot have it. */
function resourceFields(options: RunOptions, caller: Caller) {
  const { channel, subject, onNewer, onLost, queue, exclusive, lease = [] } = options;
  return {
    ...(channel === undefined ? {} : { channelId: channel }),
    ...(subject === undefined ? {} : { externalSubject: subject }),
    ...(onNewer === undefined ? {} : { onNewerSubject: onNewer }),
    ...(onLost === undefined ? {} : { onLost }),
    ...(queue === false ? { queueOnConflict: false } : {}),
    ...(exclusive === undefined ? {} : { exclusive }),
    ...(lease.length === 0 ? {} : { leases: lease.map((text) => parseLease(text, caller)) }),
  };
}

/** Which work it waits for, and for how much of it. */
function afterFields({ after = [], afterNeeded }: RunOptions) {
  if (after.length === 0) {
    if (afterNeeded === undefined) return {};
    throw usage('--after-needed is for --after: it says how many of those are enough.');
  }
  return {
    after: {
      workUnits: [...after],
      ...(afterNeeded === undefined ? {} : { needed: parseNeeded(afterNeeded) }),
    },
  };
}

/** `NAME=VALUE`, `NAME` for the caller's own; files as paths, one that need not be there after a `-`. */
function environmentFields({ env = [], envFile = [] }: RunOptions, caller: Caller) {
  const variables = env.map((text) => parseVariable(text, caller));
  const files = envFile.map((file) =>
    file.startsWith('-') ? `-${workTree(file.slice(1), caller)}` : workTree(file, caller),
  );
  return {
    ...(variables.length === 0 ? {} : { environment: Object.fromEntries(variables) }),
    ...(files.length === 0 ? {} : { environmentFiles: files }),
  };
}

function parseVariable(text: string, { env }: Caller): [name: string, value: string] {
  const equals = text.indexOf('=');
  if (equals !== -1) return [text.slice(0, equals), text.slice(equals + 1)];
  const value = env[text];
  if (value !== undefined) return [text, value];
  throw usage(`--env ${text}: it is not set here. Set it, or give --env ${text}=VALUE.`);
}

function parseNeeded(text: string): 'all' | 'any' | number {
  if (text === 'all' || text === 'any') return text;
  if (/^[1-9]\d?$/.test(text)) return Number(text);
  throw usage(`--after-needed "${text}" is neither "any" nor a number.`);
}

/** `TYPE:KEY`; a relative path is meant from here, as in every other command. */
function parseLease(text: string, caller: Caller): LeaseRequest {
  const colon = text.indexOf(':');
  const type = LEASE_TYPES.find((known) => known === text.slice(0, colon));
  const key = text.slice(colon + 1);
  if (type === undefined || key === '') {
    throw usage(
      `--lease "${text}" is not TYPE:KEY, as bound_path:/srv/data. Types: ${LEASE_TYPES.join(', ')}.`,
    );
  }
  return { type, key: type === 'bound_path' ? workTree(key, caller) : key };
}

function workTree(asked: string | undefined, caller: Caller): string {
  if (asked !== undefined && path.isAbsolute(asked)) return path.resolve(asked);
  if (asked === '') throw usage('--cwd is empty. Give it a directory, or leave it out.');
  let here: string;
  try {
    here = caller.cwd();
  } catch {
    throw usage('The current directory is gone. Go elsewhere, or give --cwd an absolute path.');
  }
  return path.resolve(here, asked ?? '.');
}

function parsePriority(text: string): number {
  if (/^[+-]?\d+$/.test(text)) return Number(text);
  throw usage(`--priority "${text}" is not a whole number.`);
}

function commandWords(words: readonly string[], options: RunOptions): string[] {
  if (options.promptFile !== undefined) throw usage('--prompt-file is for --runner pi.');
  if (options.model !== undefined) throw usage('--model is for --runner pi.');
  if (options.toolPolicy !== undefined) {
    throw usage('--tool-policy is for --runner pi: nobody stands before what a command does.');
  }
  if (words[0] !== undefined && words[0] !== '') return [...words];
  throw usage(
    'There is no command. Give it after "--": outlive run --runner command -- make test.',
  );
}

const OPTION_OF_FIELD: Readonly<Record<string, string>> = {
  handle: '--handle',
  cwd: '--cwd',
  model: '--model',
  timeoutPolicy: '--hard-timeout',
  idempotencyKey: '--idempotency-key',
  priority: '--priority',
  providerPresetId: '--preset',
  spendCeiling: '--max-cost or --max-tokens',
  channelId: '--channel',
  externalSubject: '--subject',
  leases: '--lease',
  after: '--after or --after-needed',
  environment: '--env',
  environmentFiles: '--env-file',
  argv: 'the command',
  prompt: 'the prompt',
  toolPolicy: '--tool-policy',
};

/** The API would refuse the same, but the answer should name the option and need no daemon. */
function refuseBadFields(request: StartWorkUnitInput): void {
  const parsed = startWorkUnitSchema.safeParse(request);
  if (parsed.success) return;
  const said = parsed.error.issues.map((issue) => {
    const field = String(issue.path[0] ?? '');
    const name = field === 'environment' && issue.path[1] ? ` ${String(issue.path[1])}` : '';
    return `${OPTION_OF_FIELD[field] ?? field}${name}: ${issue.message}`;
  });
  throw usage(`${said.join('; ')}.`);
}
