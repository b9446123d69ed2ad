/** The secret values that an attempt's program can reach: its credentials, variables named as such, the keys in Pi's own files. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { LaunchFile } from '../domain/attempt-files.ts';
import { isObject, listOf, objectOf, parseJson } from './json.ts';

type Values = Readonly<Record<string, string>>;

/** What keyless servers are given as a key is an ordinary word: "ollama", "not-needed". */
const isPlaceholder = (value: string): boolean => /^[a-z_-]{0,15}$/.test(value);

/**
 * Values to redact, by a name that says where they are from. A `!command` is not run, so its
 * output is known only where it is also a credential; a token that Pi gets later is not known.
 */
export function knownSecrets(launch: LaunchFile, credentials: Values): Values {
  const variables = namedAsSecret(launch.environment);
  if (launch.runner.kind !== 'pi') return { ...variables, ...credentials };
  const environment = { ...launch.environment, ...credentials };
  const { HOME: home = '', PI_CODING_AGENT_DIR: agent } = environment;
  const directory = agent ?? path.join(home, '.pi', 'agent');
  const auth = stringsIn(readJson(path.join(directory, 'auth.json')), (key) => key !== 'type');
  const models = objectOf(readJson(path.join(directory, 'models.json')));
  const keys = keysOfModels(models['providers'], false);
  return {
    ...variables,
    ...named('auth.json', auth, environment),
    ...named('models.json', keys, environment),
    ...credentials,
  };
}

/** Variables that by their name hold a secret; a value that is a plain word or a path is none. */
function namedAsSecret(environment: Values): Values {
  const isSecret = ([name, value]: [string, string]): boolean =>
    /TOKEN|SECRET|KEY|PASSWORD/i.test(name) && !isPlaceholder(value) && !/^\/[\w./-]*$/.test(value);
  return Object.fromEntries(Object.entries(environment).filter(isSecret));
}

function readJson(file: string): unknown {
  try {
    return parseJson(readFileSync(file, 'utf8'));
  } catch {
    return null; // Not there: nothing of it is known, nor can Pi use it.
  }
}

function stringsIn(value: unknown, isMeant: (key: string) => boolean): string[] {
  if (typeof value === 'string') return [value];
  if (Array.isArray(value)) return listOf(value).flatMap((item) => stringsIn(item, isMeant));
  return Object.entries(objectOf(value)).flatMap(([key, item]) =>
    isMeant(key) ? stringsIn(item, isMeant) : [],
  );
}

/** Values of `apiKey` and of headers, wherever they stand; the rest is no secret. */
function keysOfModels(value: unknown, isKey: boolean): string[] {
  if (typeof value === 'string') return isKey ? [value] : [];
  if (Array.isArray(value)) return listOf(value).flatMap((item) => keysOfModels(item, isKey));
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([key, item]) =>
    keysOfModels(item, isKey || key === 'apiKey' || key === 'headers'),
  );
}

/** Each value as it is, and the values of the variables that it names. */
function named(file: string, values: readonly string[], environment: Values): Values {
  const found: [string, string][] = [];
  for (const value of values) {
    if (value.startsWith('!')) continue;
    for (const [, braced, plain] of value.matchAll(/\$(?:\{(\w+)\}|(\w+))/g)) {
      const name = braced ?? plain ?? '';
      const held = environment[name];
      if (held) found.push([`$${name}`, held]);
    }
    if (!isPlaceholder(value)) found.push([`${file}:${found.length}`, value]);
  }
  return Object.fromEntries(found);
}
