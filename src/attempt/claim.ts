/**
 * The claim: whoever links the file first has won for good (link(2) is atomic and
 * never overwrites). A revoked attempt can therefore not start late, and the file
 * tells after any crash who won.
 */
import { linkSync, readFileSync, unlinkSync } from 'node:fs';
import path from 'node:path';
import { ATTEMPT_FILES, type ClaimFile } from '../domain/attempt-files.ts';
import { errorCode, syncDirectory, writeNewFile } from './files.ts';
import { objectOf, parseJson } from './json.ts';

/** `won`, or a sentence about who did. */
export type ClaimResult = { readonly won: true } | { readonly won: false; readonly winner: string };

/** Claims the attempt for this process. Throws when the directory cannot be written. */
export function claimAttempt(directory: string, claim: ClaimFile & { by: 'wrapper' }): ClaimResult {
  const target = path.join(directory, ATTEMPT_FILES.claim);
  // Unique also between pid namespaces, where two wrappers may share a pid.
  const temporary = `${target}.${process.pid}-${process.hrtime.bigint()}`;
  writeNewFile(temporary, `${JSON.stringify(claim)}\n`);
  try {
    linkSync(temporary, target);
    syncDirectory(directory);
    return { won: true };
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    return { won: false, winner: describeWinner(target) };
  } finally {
    unlinkSync(temporary);
  }
}

function describeWinner(file: string): string {
  const claim = objectOf(parseJson(readFileSync(file, 'utf8')));
  if (claim['by'] === 'revoked') return `revoked by daemon ${String(claim['runtimeInstanceId'])}`;
  if (claim['by'] === 'wrapper') return `claimed by the wrapper with pid ${String(claim['pid'])}`;
  return 'claimed by somebody unknown';
}
