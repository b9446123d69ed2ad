/** Decisions of a person, as signed files that only the daemon can make. */
import { createHash, createPublicKey, type KeyObject, verify } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import path from 'node:path';
import { type Decision, decisionFileName, decisionText } from '../domain/decisions.ts';
import { isObject, parseJson, stringOf } from './json.ts';

const MAX_FILE_BYTES = 256 * 1024;

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** The key of launch.json. Throws where it is none: without it no decision could be believed. */
export const publicKeyOf = (base64: string): KeyObject =>
  createPublicKey({ key: Buffer.from(base64, 'base64'), format: 'der', type: 'spki' });

/** The text of the call's decision file; null when there is none that can be read. */
export function readDecision(directory: string, toolCallId: string): string | null {
  const file = path.join(directory, decisionFileName(sha256(toolCallId)));
  let fd: number;
  try {
    // Neither a link nor a FIFO, which would wait for its writer.
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    if (!fstatSync(fd).isFile()) return null;
    const bytes = Buffer.alloc(MAX_FILE_BYTES);
    return bytes.toString('utf8', 0, readSync(fd, bytes, 0, bytes.length, 0));
  } catch {
    return null;
  } finally {
    closeSync(fd);
  }
}

/** What a decision must be about to count. */
export interface Subject {
  readonly attemptId: string;
  readonly toolCallId: string;
  readonly fingerprint: string;
}

/** The decision, or a sentence why the text is none for this call. */
export function checkDecision(text: string, key: KeyObject, subject: Subject): Decision | string {
  const raw = parseJson(text);
  if (!isObject(raw)) return 'it is no JSON object';
  // Every field is signed, also those of a newer daemon that mean nothing here.
  const { signature, ...signed } = raw;
  const decision = signed as unknown as Decision;
  const given = Buffer.from(stringOf(signature) ?? '', 'base64');
  if (!verify(null, Buffer.from(decisionText(decision)), key, given)) {
    return 'its signature does not hold';
  }
  if (decision.v !== 1) return 'its version is unknown';
  if (decision.attemptId !== subject.attemptId) return 'it is for another attempt';
  if (decision.toolCallId !== subject.toolCallId) return 'it is for another call';
  if (decision.fingerprint !== subject.fingerprint) return 'the call was another one';
  const isWhole =
    (decision.decision === 'approved' || decision.decision === 'denied') &&
    stringOf(decision.approvalId) !== null;
  return isWhole ? decision : 'it does not say what was decided';
}
