/** Reads one line from a client of the control socket. */
import { CONTROL_VERSION, type ControlToWrapper } from '../domain/attempt-files.ts';
import type { AbortReason } from './event-data.ts';
import { isObject, parseJson, stringOf } from './json.ts';

const REASONS: readonly AbortReason[] = ['cancel', 'interrupt', 'suspend', 'fail'];
const MAX_GRACE_MS = 600_000;

/** A daemon that is older or newer speaks the lower of both versions, so none is later than ours. */
const isKnownVersion = (v: unknown): v is number =>
  typeof v === 'number' && Number.isInteger(v) && v >= 1 && v <= CONTROL_VERSION;
const KNOWN_VERSIONS = CONTROL_VERSION > 1 ? `1 to ${CONTROL_VERSION}` : '1';

/** A command, or why a line is none. */
export type Command =
  | ControlToWrapper
  | { readonly type: 'bad'; readonly id: string | null; readonly message: string };

export function parseCommand(line: string): Command {
  const raw = parseJson(line);
  if (!isObject(raw)) return { type: 'bad', id: null, message: 'not a JSON object' };
  const id = stringOf(raw['id']);
  const bad = (message: string): Command => ({ type: 'bad', id, message });
  const v = raw['v'];
  if (!isKnownVersion(v)) return bad(`v is not ${KNOWN_VERSIONS}`);
  if (id === null) return bad('id is not a text');
  if (raw['type'] === 'ping') return { v, type: 'ping', id };
  if (raw['type'] === 'look') return { v, type: 'look', id };
  if (raw['type'] !== 'abort') return bad(`type is none of ping, look, abort`);
  const reason = REASONS.find((known) => known === raw['reason']);
  if (reason === undefined) return bad(`reason is none of ${REASONS.join(', ')}`);
  const graceMs = raw['graceMs'];
  if (typeof graceMs !== 'number' || !(graceMs >= 0 && graceMs <= MAX_GRACE_MS)) {
    return bad(`graceMs is not between 0 and ${MAX_GRACE_MS}`);
  }
  return { v, type: 'abort', id, reason, graceMs };
}
