/**
 * Runs inside Pi. It is the fence around tools that act: bash, edit and write are replaced by
 * definitions around Pi's own, which ask the wrapper before they run and tell it how they ended,
 * over Pi's own stdio. A tool that could not be replaced is held back in the hook.
 *
 * It also tells of answers of a provider that are failures, with their Retry-After: Pi keeps no
 * header of a failed answer and gives none to extensions, but the HTTP client it is built on
 * announces every answer in the process.
 *
 * Read as text and loaded by Pi on its own, so it imports nothing of ours.
 */
import { subscribe } from 'node:diagnostics_channel';
import { realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import {
  createBashToolDefinition,
  createEditToolDefinition,
  createFindToolDefinition,
  createGrepToolDefinition,
  createLsToolDefinition,
  createReadToolDefinition,
  createWriteToolDefinition,
  type ExtensionAPI,
  type ExtensionContext,
  type ToolDefinition,
} from '@earendil-works/pi-coding-agent';

/** Put here by the wrapper when it places the copy (pi-runner.ts). */
interface Settings {
  /** This file, as Pi was told of it. */
  readonly file: string;
  /** Tools that are replaced. */
  readonly fenced: readonly string[];
  /** Tools of Pi that only read, and run without asking. */
  readonly plain: readonly string[];
  /** Before an argv, it runs that inside the nest; null without one. */
  readonly enter: readonly string[] | null;
  /** Providers that are reached through the wrapper, and where that listens. */
  readonly providers: readonly { readonly name: string; readonly baseUrl: string }[];
}
const SETTINGS = JSON.parse('__OUTLIVE_SETTINGS__') as Settings;

const FENCE = 'outlive:fence ';
const TOKENS = 'outlive:tokens';
const NOTICE = 'outlive:provider-answer ';
const TELLING: ReadonlySet<string> = new Set(['retry-after', 'retry-after-ms']);
const FAILED = 400;

// biome-ignore lint/suspicious/noExplicitAny: Pi's own type for tools of any parameters.
type AnyTool = ToolDefinition<any, any, any>;
type Ui = ExtensionContext['ui'];

interface Call {
  readonly toolCallId: string;
  readonly tool: string;
  readonly arguments: unknown;
  readonly cwd: string;
}

interface Ended extends Omit<Call, 'arguments' | 'cwd'> {
  readonly isError: boolean;
  readonly content: unknown;
  readonly durationMs: number | null;
}

const MAKERS: Readonly<Record<string, (cwd: string, pi: ExtensionAPI) => AnyTool>> = {
  bash: bashTool,
  edit: (cwd) => createEditToolDefinition(cwd),
  write: (cwd) => createWriteToolDefinition(cwd),
  read: (cwd, pi) => createReadToolDefinition(cwd, readOptions(pi)),
  grep: (cwd) => createGrepToolDefinition(cwd),
  find: (cwd) => createFindToolDefinition(cwd),
  ls: (cwd) => createLsToolDefinition(cwd),
};

export default function fence(pi: ExtensionAPI): void {
  for (const name of SETTINGS.fenced) pi.registerTool(fenced(name, pi));
  // Known to have a key, so that Pi can choose a model; the token comes before the first prompt.
  for (const { name, baseUrl } of SETTINGS.providers)
    pi.registerProvider(name, { baseUrl, apiKey: 'outlive' });
  const foreign = new Set<string>();
  pi.on('session_start', (_event, { ui }) => {
    const ours = SETTINGS.fenced.filter((name) => isOurs(name, pi));
    const ready = (): void =>
      ui.notify(FENCE + JSON.stringify({ kind: 'ready', tools: ours }), 'info');
    // Not awaited: Pi reads no answer before all of its extensions have started.
    if (SETTINGS.providers.length === 0) ready();
    else void takeTokens(pi, ui).then(ready, (error) => ui.notify(String(error), 'error'));
    tellOfFailedAnswers(ui);
  });
  pi.on('tool_call', async ({ toolName: tool, toolCallId, input }, context) => {
    if (SETTINGS.fenced.includes(tool)) return isOurs(tool, pi) ? undefined : replaced(tool, pi);
    if (SETTINGS.plain.includes(tool)) return isPis(tool, pi) ? undefined : replaced(tool, pi);
    const call = { toolCallId, tool, arguments: input, cwd: context.cwd };
    const refusal = await begin(context.ui, call, context.signal, true);
    if (refusal !== null) return { block: true, reason: refusal };
    foreign.add(toolCallId);
    return undefined;
  });
  pi.on('tool_result', async ({ toolCallId, toolName, content, isError }, { ui, signal }) => {
    if (!foreign.delete(toolCallId)) return;
    await end(ui, { toolCallId, tool: toolName, isError, content, durationMs: null }, signal);
  });
}

/** What Pi sends in place of the keys, which the wrapper has. */
async function takeTokens(pi: ExtensionAPI, ui: Ui): Promise<void> {
  const said = await ui.input(TOKENS);
  if (said === undefined) return;
  const tokens = JSON.parse(said) as Readonly<Record<string, string>>;
  for (const { name, baseUrl } of SETTINGS.providers) {
    const apiKey = tokens[name];
    if (apiKey !== undefined) pi.registerProvider(name, { baseUrl, apiKey });
  }
}

const sourceOf = (name: string, pi: ExtensionAPI) =>
  pi.getAllTools().find((tool) => tool.name === name)?.sourceInfo;

function isOurs(name: string, pi: ExtensionAPI): boolean {
  const source = sourceOf(name, pi)?.path ?? '';
  return source === SETTINGS.file || real(source) === real(SETTINGS.file);
}

function isPis(name: string, pi: ExtensionAPI): boolean {
  const source = sourceOf(name, pi);
  return source?.source === 'builtin' && source.path === `builtin:${name}`;
}

function replaced(name: string, pi: ExtensionAPI): { block: true; reason: string } {
  const by = sourceOf(name, pi)?.path ?? 'another extension';
  return { block: true, reason: `${name} was replaced by ${by}, so outlive cannot see it act` };
}

function real(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    return file;
  }
}

/** Pi's definition, asked about before it runs. What it gets is what was asked about, and nobody else's. */
function fenced(name: string, pi: ExtensionAPI): AnyTool {
  const make = MAKERS[name];
  if (make === undefined) throw new Error(`no fence for ${name}`);
  const shown = make(process.cwd(), pi);
  return {
    ...shown,
    // Not of its own accord: what is active stays as the person's settings say.
    defaultActive: false,
    async execute(toolCallId, params, signal, onUpdate, context) {
      const given: unknown = JSON.parse(JSON.stringify(params));
      const { ui, cwd } = context;
      const call = { toolCallId, tool: name, arguments: given, cwd };
      const refusal = await begin(ui, call, signal, false);
      if (refusal !== null) throw new Error(refusal);
      const began = performance.now();
      const tell = (isError: boolean, content: unknown): Promise<void> => {
        const durationMs = Math.round(performance.now() - began);
        return end(ui, { toolCallId, tool: name, isError, content, durationMs }, signal);
      };
      try {
        const result = await make(cwd, pi).execute(toolCallId, given, signal, onUpdate, context);
        await tell(result.isError === true, result.content);
        return result;
      } catch (error) {
        const text = error instanceof Error ? error.message : String(error);
        await tell(true, [{ type: 'text', text }]);
        throw error;
      }
    },
  };
}

/** Null when the call may run, else why not. Without an answer it may not. */
async function begin(
  ui: Ui,
  call: Call,
  signal: AbortSignal | undefined,
  foreign: boolean,
): Promise<string | null> {
  const title = FENCE + JSON.stringify({ kind: 'begin', ...call, foreign });
  const said = await ui.input(title, undefined, signal === undefined ? {} : { signal });
  if (said === undefined) {
    ui.notify(FENCE + JSON.stringify({ kind: 'dropped', toolCallId: call.toolCallId }), 'info');
    return 'Not run: it was aborted, or outlive gave no answer';
  }
  const answer = JSON.parse(said) as { go?: boolean; refused?: string };
  return answer.go === true ? null : (answer.refused ?? 'Not run: outlive refused it');
}

/**
 * Waits until the end is on the disk; after an abort it only tells of it. Then the run is over, or
 * there is no wrapper any more, and the result must still get into the conversation.
 */
async function end(ui: Ui, ended: Ended, signal: AbortSignal | undefined): Promise<void> {
  const { content, ...facts } = ended;
  const parts = Array.isArray(content) ? (content as { text?: unknown }[]) : [];
  const result = parts.map(({ text }) => (typeof text === 'string' ? text : '')).join('');
  const record = FENCE + JSON.stringify({ kind: 'end', ...facts, result });
  if (signal?.aborted) ui.notify(record, 'info');
  else await ui.input(record, undefined, signal === undefined ? {} : { signal });
}

/** As Pi makes its own, from the person's settings, and in the nest where there is one. */
function bashTool(cwd: string, pi: ExtensionAPI): AnyTool {
  const { shellPath, shellCommandPrefix } = settingsOf(pi);
  const shell = typeof shellPath === 'string' && shellPath !== '' ? shellPath : null;
  const prefix = typeof shellCommandPrefix === 'string' ? shellCommandPrefix : null;
  const { enter } = SETTINGS;
  return createBashToolDefinition(cwd, {
    ...(shell !== null && { shellPath: shell.replace(/^~(?=\/|$)/, homedir()) }),
    ...(prefix !== null && { commandPrefix: prefix }),
    ...(enter !== null && {
      spawnHook: (spawn) => ({
        ...spawn,
        command: `exec ${[...enter, shell ?? 'bash', '-c', spawn.command].map(quoted).join(' ')}`,
      }),
    }),
  });
}

function readOptions(pi: ExtensionAPI): { autoResizeImages: boolean } {
  const images = settingsOf(pi)['images'] as { autoResize?: boolean } | undefined;
  return { autoResizeImages: images?.autoResize ?? true };
}

/** None while Pi loads extensions: what is made then is only shown. */
function settingsOf(pi: ExtensionAPI): Readonly<Record<string, unknown>> {
  try {
    return pi.getSettings() as Readonly<Record<string, unknown>>;
  } catch {
    return {};
  }
}

const quoted = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

/** Name and value take turns, each a string or bytes. */
function headersOf(list: readonly unknown[]): Record<string, string> {
  const pairs = list.flatMap((name, index) =>
    index % 2 === 0 ? [[String(name).toLowerCase(), String(list[index + 1])] as const] : [],
  );
  return Object.fromEntries(pairs.filter(([name]) => TELLING.has(name)));
}

let listener: Ui | null = null;

function tellOfFailedAnswers(ui: Ui): void {
  const isFirst = listener === null;
  listener = ui;
  if (!isFirst) return;
  subscribe('undici:request:headers', (message) => {
    const { response } = message as {
      response?: { statusCode?: number; headers?: readonly unknown[] };
    };
    const status = response?.statusCode ?? 0;
    if (status < FAILED || !response?.headers) return;
    const headers = headersOf(response.headers);
    if (Object.keys(headers).length === 0) return;
    listener?.notify(NOTICE + JSON.stringify({ status, headers }), 'info');
  });
}
