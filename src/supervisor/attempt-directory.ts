/** The daemon's side of an attempt's files: what the wrapper finds, and what is swept afterwards. */
import { constants } from 'node:fs';
import { link, lstat, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { ClaimFile, LaunchFile, SandboxSpec } from '../domain/attempt-files.ts';
import { ATTEMPT_FILES, LAUNCH_VERSION } from '../domain/attempt-files.ts';
import { shortId } from '../domain/ids.ts';
import type { AttemptRow } from '../store/attempts.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { approvalSpec } from './approval-spec.ts';
import type { Context, Settings } from './context.ts';
import { continuationOf } from './continuation.ts';
import { driverEnvironment } from './driver-environment.ts';
import { givenEnvironment } from './environment.ts';
import { verifyEnvironment } from './outcome-verify.ts';
import { spendOfUnit } from './spend-gate.ts';
import { timeoutsOf } from './time-left.ts';
import { removeTree } from './trees.ts';

export interface AttemptPaths {
  readonly directory: string;
  readonly launch: string;
  readonly spool: string;
  readonly claim: string;
  readonly runtime: string;
  readonly controlSocket: string;
  readonly credentials: string;
  readonly exitRecord: string;
  readonly haltMarker: string;
  readonly sessionFile: string;
  /** Where the daemon puts decisions for this attempt, and nobody else. */
  readonly decisions: string;
  /** Pi's TMPDIR. */
  readonly temporary: string;
}

export function attemptPaths(
  settings: Settings,
  attempt: Pick<AttemptRow, 'id' | 'workUnitId' | 'nonce' | 'conversation'>,
): AttemptPaths {
  const directory = path.join(settings.attemptsDirectory, attempt.workUnitId, attempt.id);
  const runtime = path.join(settings.runtimeDirectory, attempt.id);
  return {
    directory,
    launch: path.join(directory, ATTEMPT_FILES.launch),
    spool: path.join(directory, ATTEMPT_FILES.spool),
    claim: path.join(directory, ATTEMPT_FILES.claim),
    runtime,
    controlSocket: path.join(runtime, 'control.sock'),
    credentials: path.join(runtime, 'credentials'),
    exitRecord: path.join(settings.exitsDirectory, `${attempt.nonce}.json`),
    haltMarker: path.join(settings.exitsDirectory, `${attempt.nonce}.halt`),
    decisions: path.join(settings.decisionsDirectory, attempt.id),
    // The session belongs to the work unit, or to several in turn: every attempt goes on with it.
    sessionFile: path.join(
      settings.sessionsDirectory,
      attempt.conversation ?? attempt.workUnitId,
      'session.jsonl',
    ),
    temporary: path.join(settings.temporaryDirectory, shortId(attempt.id)),
  };
}

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC;

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Writes a file that is whole or absent after a power cut. */
export async function writeDurably(file: string, content: string): Promise<void> {
  const temporary = `${file}.new`;
  const handle = await open(temporary, NEW_FILE, 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(temporary, file);
  await syncDirectory(path.dirname(file));
}

/** Makes a directory whose name is still there after a power cut: what is synced in it needs it. */
async function makeDurably(directory: string): Promise<void> {
  const first = await mkdir(directory, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let made = directory; made.length >= first.length; made = path.dirname(made)) {
    await syncDirectory(path.dirname(made));
  }
}

/** What was found out for this attempt, right before it. */
interface Prepared {
  readonly sandbox: SandboxSpec | null;
  /** Variables that the request gives, values of files included. */
  readonly given: Readonly<Record<string, string>>;
}

function launchFile(
  context: Context,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
  paths: AttemptPaths,
  { sandbox, given }: Prepared,
): LaunchFile {
  const { request } = workUnit;
  const { settings } = context;
  const isPi = workUnit.runnerId === 'pi';
  return {
    version: LAUNCH_VERSION,
    workspace: context.workspace,
    workUnitId: workUnit.id,
    attemptId: attempt.id,
    attemptNumber: attempt.attemptNumber,
    handle: workUnit.handle,
    unit: attempt.unit,
    nonce: attempt.nonce,
    runnerId: workUnit.runnerId,
    runner: isPi
      ? {
          kind: 'pi',
          command: settings.piCommand,
          sessionFile: paths.sessionFile,
          prompt: request.prompt ?? '',
          continuation: continuationOf(context, workUnit, attempt),
          model: workUnit.model,
        }
      : { kind: 'command', argv: request.argv ?? [] },
    cwd: workUnit.cwd,
    environment: {
      ...settings.runnerEnvironment,
      ...given,
      OUTLIVE_WORKSPACE: context.workspace,
      OUTLIVE_HANDLE: workUnit.handle,
      OUTLIVE_ATTEMPT: String(attempt.attemptNumber),
      ...(workUnit.externalSubject === null ? {} : { OUTLIVE_SUBJECT: workUnit.externalSubject }),
      ...driverEnvironment(workUnit),
      ...verifyEnvironment(context, workUnit.id),
    },
    credentialVariables: isPi ? variablesOfPi(settings) : [],
    keyProxy: isPi ? settings.policies.keyProxy : [],
    timeouts: timeoutsOf(workUnit, attempt),
    ceiling: spendOfUnit(context, workUnit).left,
    controlSocket: paths.controlSocket,
    temporaryDirectory: isPi ? paths.temporary : null,
    captureBytes: settings.captureBytes,
    umask: settings.umask,
    approvals: isPi ? approvalSpec(context, workUnit, attempt, paths) : null,
    sandbox,
  };
}

/** A key that the wrapper keeps is not among them, whichever wrapper reads this. */
function variablesOfPi({ keys, policies }: Settings): string[] {
  const kept = new Set(policies.keyProxy.map(({ keyVariable }) => keyVariable));
  return Object.keys(keys).filter((name) => !kept.has(name));
}

/**
 * Makes everything the wrapper needs, durable, before systemd is asked to start it.
 * @throws Error also when a file of variables cannot be had.
 */
export async function prepareAttempt(
  context: Context,
  workUnit: WorkUnitRow,
  attempt: AttemptRow,
  sandbox: SandboxSpec | null,
): Promise<AttemptPaths> {
  const paths = attemptPaths(context.settings, attempt);
  const given = await givenEnvironment(workUnit);
  const privately = { recursive: true, mode: 0o700 } as const;
  await makeDurably(paths.directory);
  await mkdir(path.dirname(paths.sessionFile), privately);
  await mkdir(paths.runtime, privately);
  if (workUnit.runnerId === 'pi') await mkdir(paths.decisions, privately);
  await writeDurably(
    paths.launch,
    JSON.stringify(launchFile(context, workUnit, attempt, paths, { sandbox, given })),
  );
  if (workUnit.runnerId === 'pi') await writeCredentials(paths, context.settings.keys);
  return paths;
}

async function writeCredentials(
  paths: AttemptPaths,
  keys: Readonly<Record<string, string>>,
): Promise<void> {
  if (Object.keys(keys).length === 0) return;
  await mkdir(paths.credentials, { recursive: true, mode: 0o700 });
  for (const [name, value] of Object.entries(keys)) {
    const handle = await open(path.join(paths.credentials, name), NEW_FILE, 0o600);
    try {
      await handle.writeFile(value);
    } finally {
      await handle.close();
    }
  }
}

/** systemd has its copy once the main process is executed; ours must not lie about. */
export async function removeCredentials(paths: AttemptPaths): Promise<void> {
  await rm(paths.credentials, { recursive: true, force: true });
}

/** What a process that died in the middle of a write left: files that never became what they were to be. */
const isUnfinished = (name: string): boolean =>
  name === ATTEMPT_FILES.reserve ||
  name.startsWith(`${ATTEMPT_FILES.claim}.`) ||
  name.endsWith('.new');

/**
 * After the end: runtime files, temporary and unfinished ones go, spool, artifacts and
 * records stay. What an agent made so that it cannot be removed is told, and costs no more.
 */
export async function sweepAttempt({ log }: Context, paths: AttemptPaths): Promise<void> {
  await rm(paths.runtime, { recursive: true, force: true });
  await rm(paths.decisions, { recursive: true, force: true });
  const names = await readdir(paths.directory).catch(() => []);
  for (const name of names.filter(isUnfinished)) {
    await rm(path.join(paths.directory, name), { force: true });
  }
  for (const tree of [path.join(paths.directory, ATTEMPT_FILES.snapshot), paths.temporary]) {
    await removeTree(tree).catch((error: unknown) => {
      log.warn({ err: error, tree }, 'files of an ended attempt are left');
    });
  }
}

/** Who holds the claim; a file that cannot be parsed was still made by somebody: the wrapper, as far as safety goes. */
export async function readClaim(paths: AttemptPaths): Promise<'none' | 'wrapper' | 'revoked'> {
  try {
    const claim = JSON.parse(await readFile(paths.claim, 'utf8')) as ClaimFile;
    return claim.by === 'revoked' ? 'revoked' : 'wrapper';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'none' : 'wrapper';
  }
}

/**
 * Makes sure that no late start of this attempt can run: links a claim of our own,
 * unless one is there. Repeatable.
 * @returns who holds the claim now.
 */
export async function revokeClaim(
  paths: AttemptPaths,
  attempt: AttemptRow,
  runtimeInstanceId: string,
): Promise<'wrapper' | 'revoked'> {
  const claim: ClaimFile = { v: 1, by: 'revoked', nonce: attempt.nonce, runtimeInstanceId };
  const temporary = `${paths.claim}.revoke-${runtimeInstanceId}`;
  // Was its unit seen, so was its directory: one that is gone took with it who had the claim.
  if (attempt.status !== 'created' && !(await isThere(paths.directory))) return 'wrapper';
  await mkdir(paths.directory, { recursive: true, mode: 0o700 });
  const handle = await open(temporary, NEW_FILE, 0o600);
  try {
    await handle.writeFile(JSON.stringify(claim));
    await handle.sync();
  } finally {
    await handle.close();
  }
  try {
    await link(temporary, paths.claim);
    await syncDirectory(paths.directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(temporary, { force: true });
  }
  return (await readClaim(paths)) === 'revoked' ? 'revoked' : 'wrapper';
}

const isThere = (file: string): Promise<boolean> =>
  lstat(file).then(
    () => true,
    (error: unknown) => (error as NodeJS.ErrnoException).code !== 'ENOENT',
  );

/** True when the halt script left its marker for this attempt. */
export async function hasHaltMarker(paths: AttemptPaths): Promise<boolean> {
  try {
    return (await lstat(paths.haltMarker)).isFile();
  } catch {
    return false;
  }
}
