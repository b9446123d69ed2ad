/**
 * What a policy says of a call. Pure: where a path leads is asked of the caller, who follows links.
 *
 * Paths of a call. read, grep, find, ls, edit and write name one, `path`. For every other tool,
 * bash above all, each text of the arguments is taken apart at what cannot be part of a plain
 * path, as it stands and once more without quotes and backslashes, and every piece counts as a
 * path. That errs on the side of "outside": a program called by its absolute path, an URL and a
 * pattern with a slash behind a star are outside, and so is every text with `$` or a backquote,
 * since nobody can say what stands there. Only /dev/null and the standard streams are let go.
 * Not seen is what a program does by itself: a script in the tree, a path that is put together or
 * decoded inside one, a link that is made or turned after the look. A policy is a rule about
 * calls; what holds programs is a nest.
 */
import type { Call, ToolEffect, ToolPolicy, ToolRule } from './decisions.ts';

export interface Verdict {
  readonly effect: ToolEffect;
  /** The rule that decided; null where none held. */
  readonly rule: ToolRule | null;
}

/** Whether a path, as a call names it, lies in the work tree; links are followed, doubt is "no". */
export type IsInside = (path: string) => boolean;

/** Tools of Pi that change nothing. */
export const READ_ONLY_TOOLS = ['read', 'grep', 'find', 'ls'] as const;
/** Tools of Pi that act, and which the fence replaces. */
export const ACTING_TOOLS = ['bash', 'edit', 'write'] as const;

const WITH_ONE_PATH: ReadonlySet<string> = new Set([...READ_ONLY_TOOLS, 'edit', 'write']);

/** The first rule that holds decides, else `otherwise`. */
export function decide(policy: ToolPolicy, call: Call, isInside: IsInside): Verdict {
  const rule = policy.rules.find((one) => holds(one, call, isInside)) ?? null;
  return { effect: rule?.effect ?? policy.otherwise, rule };
}

/** Whether some call of the tool is not simply allowed. */
export function mayBeHeld(policy: ToolPolicy, tool: string): boolean {
  for (const rule of policy.rules) {
    if (!isOf(rule, tool)) continue;
    if (rule.effect !== 'allow') return true;
    if (rule.argument === undefined && rule.path === undefined) return false;
  }
  return policy.otherwise !== 'allow';
}

const isOf = (rule: ToolRule, tool: string): boolean => rule.tool === '*' || rule.tool === tool;

function holds(rule: ToolRule, call: Call, isInside: IsInside): boolean {
  if (!isOf(rule, call.tool)) return false;
  if (rule.argument !== undefined && !isFound(rule.argument, call.arguments)) return false;
  return rule.path === undefined || (rule.path === 'inside') === staysInside(call, isInside);
}

function isFound({ name, pattern }: NonNullable<ToolRule['argument']>, given: unknown): boolean {
  const regex = new RegExp(pattern, 'u');
  return textsOf(name === undefined ? given : named(given, name)).some((text) => regex.test(text));
}

/** `command` and `/command` are the same; `/edits/0/newText` goes deeper. */
function named(given: unknown, name: string): unknown {
  const steps = name.replace(/^\//, '').split('/');
  return steps.reduce<unknown>(
    (value, step) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, step)
        ? (value as Readonly<Record<string, unknown>>)[step]
        : undefined,
    given,
  );
}

/** Every text in the value, names left out. */
function textsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(textsOf);
}

function staysInside(call: Call, isInside: IsInside): boolean {
  if (WITH_ONE_PATH.has(call.tool)) {
    const path = named(call.arguments, 'path');
    return isInside(typeof path === 'string' ? path : '.');
  }
  return textsOf(call.arguments).every(
    (text) => !UNKNOWABLE.test(text) && piecesOf(text).every((piece) => isInside(piece)),
  );
}

/** A value that only the shell knows. */
const UNKNOWABLE = /[$`]/;
const NOT_OF_A_PATH = /[^\p{L}\p{N}\p{M}_./~+@%-]+/u;
const HARMLESS: ReadonlySet<string> = new Set([
  '/dev/null',
  '/dev/stdin',
  '/dev/stdout',
  '/dev/stderr',
]);

function piecesOf(text: string): string[] {
  const unquoted = text.replaceAll(/["'\\]/g, '');
  const words = [text, unquoted].flatMap((one) => one.split(NOT_OF_A_PATH));
  // `-I../include`: an option may have its path glued on.
  const pieces = words.flatMap((word) => [word, /^[-+@%]+\w*([./~].*)$/.exec(word)?.[1] ?? '']);
  return [...new Set(pieces)].filter((piece) => piece !== '' && !HARMLESS.has(piece));
}
