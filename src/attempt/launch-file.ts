/** Reads and checks launch.json. By hand: a schema library would be paid for at every start. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  ATTEMPT_FILES,
  type CommandRunnerSpec,
  type KeyProxySpec,
  LAUNCH_VERSION,
  type LaunchFile,
  type PiRunnerSpec,
  type RunCeiling,
  type SandboxSpec,
} from '../domain/attempt-files.ts';
import { SANDBOX_MODES } from '../domain/sandbox.ts';
import type { TimeoutPolicy } from '../domain/work-unit.ts';
import { FieldReader, LaunchFileError } from './field-reader.ts';
import { errorCode } from './files.ts';
import { isObject, type JsonObject, numberOf, objectOf, parseJson } from './json.ts';
import { readApprovals } from './launch-approvals.ts';

/**
 * The launch file of an attempt directory. `nonce` is OUTLIVE_NONCE of the unit:
 * one that differs means that this process was started for another attempt.
 */
export function readLaunchFile(directory: string, nonce: string | undefined): LaunchFile {
  if (!path.isAbsolute(directory)) throw new LaunchFileError(`not an absolute path: ${directory}`);
  const file = path.join(directory, ATTEMPT_FILES.launch);
  const launch = parseLaunchFile(readText(file), file);
  if (nonce === undefined || nonce === '') throw new LaunchFileError('OUTLIVE_NONCE is not set');
  if (launch.nonce !== nonce) throw new LaunchFileError(`${file} belongs to another nonce`);
  return launch;
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new LaunchFileError(`cannot read ${file}: ${errorCode(error)}`);
  }
}

/** Checks the text of a launch file; `file` is for the messages. */
export function parseLaunchFile(text: string, file: string): LaunchFile {
  const raw = parseJson(text);
  if (!isObject(raw)) throw new LaunchFileError(`${file} is not a JSON object`);
  const reader = READERS.get(raw['version']);
  if (reader === undefined) {
    throw new LaunchFileError(
      `${file} has version ${JSON.stringify(raw['version'])}, this wrapper knows ${[...READERS.keys()].join(', ')}`,
    );
  }
  return reader(raw, file);
}

function readV1(raw: JsonObject, file: string): LaunchFile {
  const read = new FieldReader(raw, file);
  const runner = readRunner(new FieldReader(objectOf(raw['runner']), `${file}: runner`));
  return {
    version: LAUNCH_VERSION,
    workspace: read.text('workspace'),
    workUnitId: read.text('workUnitId'),
    attemptId: read.text('attemptId'),
    attemptNumber: read.count('attemptNumber'),
    handle: read.text('handle'),
    unit: read.text('unit'),
    nonce: read.text('nonce'),
    runnerId: runner.kind,
    runner,
    cwd: read.absolutePath('cwd'),
    environment: read.texts('environment'),
    credentialVariables: read.list('credentialVariables'),
    keyProxy: read.has('keyProxy') ? read.objects('keyProxy').map(readKeyProxy) : [],
    timeouts: readTimeouts(new FieldReader(objectOf(raw['timeouts']), `${file}: timeouts`)),
    ceiling: readCeiling(objectOf(raw['ceiling'])),
    controlSocket: read.absolutePath('controlSocket'),
    temporaryDirectory: read.textIfAny('temporaryDirectory'),
    captureBytes: read.count('captureBytes'),
    umask: read.count('umask'),
    approvals: readApprovals(raw['approvals'], file),
    sandbox: readSandbox(raw['sandbox'], `${file}: sandbox`),
  };
}

/**
 * The versions that are read: the present one and, once there is one, the one before. A
 * daemon that was replaced between writing the file and the start leaves an older one.
 */
const READERS: ReadonlyMap<unknown, (raw: JsonObject, file: string) => LaunchFile> = new Map([
  [LAUNCH_VERSION, readV1],
]);

function readRunner(read: FieldReader): PiRunnerSpec | CommandRunnerSpec {
  const kind = read.text('kind');
  if (kind === 'command') return { kind, argv: read.filledList('argv') };
  if (kind !== 'pi') throw new LaunchFileError(`${read.where}: kind ${kind} is unknown`);
  return {
    kind,
    command: read.filledList('command'),
    sessionFile: read.absolutePath('sessionFile'),
    prompt: read.text('prompt'),
    continuation: read.textIfAny('continuation'),
    model: read.optionalText('model'),
  };
}

const readKeyProxy = (read: FieldReader): KeyProxySpec => ({
  provider: read.text('provider'),
  keyVariable: read.text('keyVariable'),
  baseUrl: read.text('baseUrl'),
  header: read.text('header'),
  scheme: read.optionalText('scheme'),
});

/** Absent in files of a daemon before this one: then there is none. */
function readCeiling({ microUsd, tokens }: JsonObject): RunCeiling {
  return { microUsd: numberOf(microUsd), tokens: numberOf(tokens) };
}

/** Absent in files of a daemon before this: then there is none. */
function readSandbox(raw: unknown, where: string): SandboxSpec | null {
  if (raw === undefined || raw === null) return null;
  const fields = objectOf(raw);
  const read = new FieldReader(fields, where);
  const mode = SANDBOX_MODES.find((known) => known === read.text('mode'));
  // One of a later version would be stronger than what is known here, never weaker.
  if (mode === undefined) throw new LaunchFileError(`${where}: mode is unknown`);
  return {
    mode,
    demanded: fields['demanded'] === true,
    weaker: read.optionalText('weaker'),
    hidden: read.list('hidden'),
    veiled: read.list('veiled'),
    readOnly: read.list('readOnly'),
  };
}

function readTimeouts(read: FieldReader): TimeoutPolicy {
  return {
    heartbeatIntervalMs: read.count('heartbeatIntervalMs'),
    heartbeatTimeoutMs: read.count('heartbeatTimeoutMs'),
    idleTimeoutMs: read.count('idleTimeoutMs'),
    hardTimeoutMs: read.count('hardTimeoutMs'),
    cancelGraceMs: read.count('cancelGraceMs'),
    toolTimeoutMs: read.count('toolTimeoutMs'),
  };
}
