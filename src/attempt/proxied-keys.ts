/** The keys that stay with the wrapper, and the tokens that Pi is given in their place. */
import { randomBytes } from 'node:crypto';
import { chmodSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { KeyProxySpec, LaunchFile } from '../domain/attempt-files.ts';
import { readCredential } from './env.ts';
import { type JsonObject, stringOf } from './json.ts';
import type { ProxiedProvider } from './runner.ts';

export interface ProxiedKey extends KeyProxySpec {
  /** What Pi sends as its key; worth nothing anywhere else, nor after this attempt. */
  readonly token: string;
  /** The key, or why there is none: only who wants to use it has to know. */
  readonly key: { readonly value: string } | { readonly missing: string };
}

/** What a header can carry (RFC 9110, field-value), less what no key has. */
const SENDABLE = /^[\x21-\x7e][\x20-\x7e]*$/;

/**
 * Reads the keys of proxied providers and takes their files away where that is permitted:
 * what the model runs could read them as well as we do.
 */
export function readProxiedKeys(
  launch: LaunchFile,
  directory: string | undefined,
): readonly ProxiedKey[] {
  if (launch.runner.kind !== 'pi') return [];
  const keys = launch.keyProxy.map((spec): ProxiedKey => {
    const token = `outlive-${randomBytes(32).toString('base64url')}`;
    return { ...spec, token, key: sendable(readCredential(directory, spec.keyVariable), spec) };
  });
  if (directory !== undefined) for (const { keyVariable } of keys) forget(directory, keyVariable);
  return keys;
}

function sendable(key: ProxiedKey['key'], { keyVariable }: KeyProxySpec): ProxiedKey['key'] {
  if ('missing' in key || SENDABLE.test(key.value)) return key;
  return { missing: `${keyVariable}: what it holds cannot be sent in a header` };
}

/** A system unit's credentials are mounted read-only, and only in its own namespace. */
function forget(directory: string, name: string): void {
  try {
    chmodSync(directory, 0o700);
    rmSync(path.join(directory, name), { force: true });
  } catch {
    // It stays as long as the unit: docs/operations.md, "Limits today".
  }
}

/** Values to redact, by a name that says what they are. */
export function secretsOf(keys: readonly ProxiedKey[]): Readonly<Record<string, string>> {
  const pairs = keys.flatMap(({ provider, keyVariable, token, key }) => [
    [`token:${provider}`, token] as const,
    ...('value' in key ? [[keyVariable, key.value] as const] : []),
  ]);
  return Object.fromEntries(pairs);
}

/** The title of the dialog in which our extension asks for the tokens (pi-extension.ts). */
const TOKENS = 'outlive:tokens';

/**
 * Hands the tokens to our extension over Pi's stdin, once, before the first prompt: nothing of the
 * model runs then that could ask in its place, and neither file, environment nor argument has them.
 */
export class TokenDesk {
  readonly #providers: readonly ProxiedProvider[];
  #isOpen = true;

  constructor(providers: readonly ProxiedProvider[]) {
    this.#providers = providers;
  }

  /** The answer to the extension's question; null for any other event. */
  answerTo(event: JsonObject): JsonObject | null {
    if (event['type'] !== 'extension_ui_request' || event['title'] !== TOKENS) return null;
    const answer = { type: 'extension_ui_response', id: stringOf(event['id']) };
    if (!this.#isOpen) return { ...answer, cancelled: true };
    this.#isOpen = false;
    const tokens = this.#providers.map(({ name, token }) => [name, token]);
    return { ...answer, value: JSON.stringify(Object.fromEntries(tokens)) };
  }

  close(): void {
    this.#isOpen = false;
  }
}
