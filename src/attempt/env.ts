/** The environment of the runner's program. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { LaunchFile } from '../domain/attempt-files.ts';
import { errorCode } from './files.ts';

/** What the wrapper itself is told by its environment; main.ts alone reads that. */
export interface WrapperEnvironment {
  readonly nonce: string | undefined;
  /** systemd's InvocationID; absent outside systemd. */
  readonly invocationId: string | undefined;
  readonly credentialsDirectory: string | undefined;
  /** OUTLIVE_MARK: what the processes of an attempt outside systemd are found by; absent in a unit. */
  readonly mark: string | undefined;
}

/** Variables with secret values, or why they cannot be had. */
export type Credentials =
  | { readonly values: Readonly<Record<string, string>> }
  | { readonly missing: string };

/**
 * Reads the credentials that Pi gets as variables. A command gets none: keys are
 * for the model's provider only.
 */
export function readCredentials(launch: LaunchFile, directory: string | undefined): Credentials {
  if (launch.runner.kind !== 'pi') return { values: {} };
  const values: Record<string, string> = {};
  for (const name of launch.credentialVariables) {
    const credential = readCredential(directory, name);
    if ('missing' in credential) return credential;
    values[name] = credential.value;
  }
  return { values };
}

/** One credential, or why it cannot be had. */
export function readCredential(
  directory: string | undefined,
  name: string,
): { readonly value: string } | { readonly missing: string } {
  if (directory === undefined) return { missing: `${name}: CREDENTIALS_DIRECTORY is not set` };
  try {
    // Files made by hand end with a line feed that is no part of a key.
    return { value: readFileSync(path.join(directory, name), 'utf8').replace(/\r?\n$/, '') };
  } catch (error) {
    return { missing: `${name}: ${errorCode(error)}` };
  }
}
