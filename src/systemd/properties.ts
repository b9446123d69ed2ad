/**
 * The transient unit of an attempt as data: what StartTransientUnit is given, and what
 * a person may be shown before. Pure.
 *
 * Signatures as they worked on 252. Only the plain ExecStart: the Ex forms are written
 * to the transient unit file in a way that the next daemon-reload cannot read. No
 * Restart=: a retry is a new attempt. No ExecStopPost: the exit record is a drop-in
 * (see drop-in.ts).
 */
import path from 'node:path';
import { Variant } from 'dbus-next';
import { OutliveError } from '../domain/errors.ts';
import { sliceName } from '../domain/names.ts';
import type { StartRequest, UnitSandbox } from '../executor/port.ts';

/** A property in plain values, printable: name, D-Bus signature, value. */
export interface PlainProperty {
  readonly name: string;
  readonly signature: string;
  readonly value: unknown;
}

/** A property as StartTransientUnit takes it. */
export type UnitProperty = readonly [name: string, value: Variant<unknown>];

/** What systemd adds to the wrapper's own cancel grace before it sends SIGKILL. */
export const STOP_MARGIN_MS = 5_000;

const SIGTERM = 15;
const MICROSECONDS = 1_000n;

/** A line end would end a setting; the others have no business in a path or an argument. */
export const CONTROL = /\p{Cc}/u;
const EXPANDED = /[$"\\%]/;

function refuse(what: string, value: string, why: string): never {
  throw new OutliveError('path_unsupported', `${what} ${JSON.stringify(value)} ${why}.`);
}

/**
 * systemd expands `$` in arguments, and a lone `;` becomes a second command at the next
 * daemon-reload (both measured on 252); `"`, `\` and `%` are kept away from its quoting,
 * which has differed between versions.
 */
function checkArgument(argument: string): void {
  if (EXPANDED.test(argument)) {
    refuse('The argument', argument, 'holds one of $ " \\ %, which systemd would expand');
  }
  if (CONTROL.test(argument)) refuse('The argument', argument, 'holds a control character');
  if (argument === ';') refuse('The argument', argument, 'would separate two commands');
}

/** Specifiers and quotes in paths survive (measured on 252); line ends and outer blanks do not. */
function checkPath(what: string, value: string): void {
  if (!path.isAbsolute(value)) refuse(what, value, 'is not absolute');
  if (CONTROL.test(value)) refuse(what, value, 'holds a control character');
  if (value !== value.trimEnd()) refuse(what, value, 'ends in a blank');
}

function checkVariable(name: string, value: string): void {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) refuse('The variable', name, 'has no valid name');
  if (value.includes('\0')) refuse('The variable', name, 'holds a NUL');
}

function environment(request: StartRequest): readonly string[] {
  // Spread first: no variable of the caller's can take the place of the identity.
  const all = { ...request.environment, OUTLIVE_NONCE: request.nonce };
  return Object.entries(all).map(([name, value]) => {
    checkVariable(name, value);
    return `${name}=${value}`;
  });
}

function execStart(argv: readonly string[]): readonly unknown[] {
  const [program = ''] = argv;
  checkPath('The program', program);
  for (const argument of argv) checkArgument(argument);
  return [[program, argv, false]]; // a(sasb); false: a failure is a failure
}

function credentials(request: StartRequest): readonly PlainProperty[] {
  if (request.credentials.length === 0) return [];
  const value = request.credentials.map(({ name, path: file }) => {
    checkPath(`The credential ${name} at`, file);
    return [name, file];
  });
  return [{ name: 'LoadCredential', signature: 'a(ss)', value }];
}

/**
 * The sandbox of a unit in a user manager (man systemd.exec). PrivateUsers= first of all: without
 * it 252 ignores the paths silently. No PrivateIPC= and no TemporaryFileSystem=, with either of
 * which a plain ExecStopPost fails; no RestrictNamespaces=, since the wrapper makes some.
 */
export function sandboxProperties({
  inaccessible,
  readOnly,
}: UnitSandbox): readonly PlainProperty[] {
  for (const each of [...inaccessible, ...readOnly]) {
    checkPath('The path', each.replace(/^-/, ''));
  }
  const on = (name: string): PlainProperty => ({ name, signature: 'b', value: true });
  return [
    on('PrivateUsers'),
    on('NoNewPrivileges'),
    // The group of another unit, or of the daemon, can neither be joined nor frozen.
    on('ProtectControlGroups'),
    on('RestrictSUIDSGID'),
    on('LockPersonality'),
    { name: 'InaccessiblePaths', signature: 'as', value: inaccessible },
    { name: 'ReadOnlyPaths', signature: 'as', value: readOnly },
  ];
}

/** One line: a line end in a Description is lost at the next daemon-reload (measured on 252). */
function oneLine(text: string): string {
  const line = Array.from(text, (character) => (CONTROL.test(character) ? ' ' : character));
  return line.slice(0, 200).join('').trim() || 'outlive attempt';
}

function microseconds(milliseconds: number): bigint {
  return BigInt(Math.max(1, Math.round(milliseconds))) * MICROSECONDS;
}

/**
 * The properties of an attempt's unit in plain values.
 * @throws OutliveError `path_unsupported` for what systemd could not carry unchanged.
 */
export function unitProperties(workspace: string, request: StartRequest): readonly PlainProperty[] {
  checkPath('The attempt directory', request.attemptDirectory);
  const property = (name: string, signature: string, value: unknown): PlainProperty => ({
    name,
    signature,
    value,
  });
  return [
    // exec: the start job ends after execve(2), so a missing program is known at once.
    property('Type', 's', 'exec'),
    property('ExecStart', 'a(sasb)', execStart(request.argv)),
    property('Description', 's', oneLine(request.description)),
    property('Slice', 's', sliceName(workspace)),
    property('WorkingDirectory', 's', request.attemptDirectory),
    property('Environment', 'as', environment(request)),
    // The deadline that needs no daemon and no wrapper; the wrapper's own comes a moment earlier.
    property('RuntimeMaxUSec', 't', microseconds(request.hardTimeoutMs)),
    property('TimeoutStopUSec', 't', microseconds(request.cancelGraceMs + STOP_MARGIN_MS)),
    // mixed: SIGTERM to the wrapper alone, SIGKILL to all that is left once it has ended.
    property('KillMode', 's', 'mixed'),
    property('KillSignal', 'i', SIGTERM),
    property('SendSIGKILL', 'b', true),
    // stop, not continue: when the kernel kills one process of an attempt for memory, what
    // the agent goes on to say is worth nothing, so the rest is told to stop and the Result
    // is oom-kill. Not kill: the wrapper shall still write its last word. Set here because
    // DefaultOOMPolicy= is the person's to change.
    property('OOMPolicy', 's', 'stop'),
    // inactive, with AddRef: an ended unit stays readable until it is let go, a failed one
    // until reset-failed; inactive-or-failed would drop the evidence of a failure.
    property('CollectMode', 's', 'inactive'),
    property('AddRef', 'b', true),
    property('SyslogIdentifier', 's', request.unit.replace(/\.service$/, '')),
    property('UMask', 'u', 0o077),
    ...credentials(request),
    ...(request.sandbox ? sandboxProperties(request.sandbox) : []),
  ];
}

/** The same for the bus. */
export function toBus(properties: readonly PlainProperty[]): readonly UnitProperty[] {
  return properties.map(({ name, signature, value }) => [name, new Variant(signature, value)]);
}
