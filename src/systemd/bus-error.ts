/** What can go wrong between us and whoever answers on the bus. */
import { OutliveError } from '../domain/errors.ts';

/**
 * - `refused`: an answer came, and it is an error (see `errorName`).
 * - `unanswered`: sent, but no answer within the deadline, or the socket or the
 *   callee died first: it may or may not have happened.
 * - `not_sent`: it never left this process.
 */
type BusFailure = 'refused' | 'unanswered' | 'not_sent';

export class BusError extends Error {
  override readonly name = 'BusError';
  readonly failure: BusFailure;
  /** D-Bus name of the error in the answer, null when there was no answer. */
  readonly errorName: string | null;

  constructor(failure: BusFailure, message: string, errorName: string | null = null) {
    super(message);
    this.failure = failure;
    this.errorName = errorName;
  }
}

/** Errors that dbus-daemon (not the callee) sends when the callee cannot answer. */
const NOBODY_ANSWERED = new Set([
  'org.freedesktop.DBus.Error.NoReply',
  'org.freedesktop.DBus.Error.Timeout',
  'org.freedesktop.DBus.Error.TimedOut',
  'org.freedesktop.DBus.Error.Disconnected',
  'org.freedesktop.DBus.Error.ServiceUnknown',
  'org.freedesktop.DBus.Error.NameHasNoOwner',
  'org.freedesktop.DBus.Error.LimitsExceeded',
  'org.freedesktop.DBus.Error.NoMemory',
]);

/** An error reply, told apart from dbus-daemon's word that nobody replied. */
export function replyError(errorName: string, text: string): BusError {
  const failure = NOBODY_ANSWERED.has(errorName) ? 'unanswered' : 'refused';
  return new BusError(failure, text || errorName, errorName);
}

/** True when nobody of that name is on the bus. */
export function isAbsent(error: unknown): boolean {
  if (!(error instanceof BusError)) return false;
  return /\.(NameHasNoOwner|ServiceUnknown)$/.test(error.errorName ?? '');
}

/** True when the manager itself answered with this error (a name below org.freedesktop.systemd1). */
export function refusedAs(error: unknown, ...names: readonly string[]): boolean {
  if (!(error instanceof BusError) || error.failure !== 'refused') return false;
  return names.some((name) => error.errorName === `org.freedesktop.systemd1.${name}`);
}

/** True when the manager knows no file of the name it was asked about. */
export function isNoSuchFile(error: unknown): boolean {
  if (!(error instanceof BusError) || error.failure !== 'refused') return false;
  return /\.(FileNotFound|NoSuchUnit)$/.test(error.errorName ?? '');
}

/** What went wrong on the bus as the refusal the supervisor knows; any other error is itself. */
export function asUnavailable(cause: unknown): unknown {
  if (!(cause instanceof BusError)) return cause;
  const what = cause.failure === 'refused' ? 'refused' : 'did not answer';
  return new OutliveError('bus_unavailable', `The user manager ${what}: ${cause.message}.`, {
    cause,
  });
}
