/** Gathers what the witnesses of an attempt's end have to say. Reads only. */

import { readFile } from 'node:fs/promises';
import { classify } from '../domain/classify.ts';
import { OutliveError } from '../domain/errors.ts';
import type { Evidence, ExitRecord, ManagerInstance, ProcessEnd } from '../domain/evidence.ts';
import {
  EXIT_RECORD_VERSION,
  exitRecordSchema,
  isNoFile,
  laterRecordVersion,
} from '../domain/evidence.ts';
import type { Opened } from '../domain/spool.ts';
import type { HostFacts, UnitFacts } from '../executor/port.ts';
import type { AttemptRow } from '../store/attempts.ts';
import { type FoundArtifact, gatherArtifacts } from './artifacts.ts';
import type { AttemptPaths } from './attempt-directory.ts';
import { hasHaltMarker, readClaim } from './attempt-directory.ts';
import type { Context } from './context.ts';
import { gatherLoss, type LossEvidence } from './lost.ts';
import { timeoutsOf } from './time-left.ts';

/** An exit record, or none; `unusable` says why one that lies there is not believed. */
interface FoundRecord {
  readonly record: ExitRecord | null;
  readonly unusable: string | null;
}

const NO_RECORD: FoundRecord = { record: null, unusable: null };

function parseRecord(text: string, nonce: string): FoundRecord | { readonly later: number } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { record: null, unusable: `it is not JSON: ${(error as Error).message}` };
  }
  const later = laterRecordVersion(value);
  if (later !== null) return { later };
  const parsed = exitRecordSchema.safeParse(value);
  if (!parsed.success) return { record: null, unusable: parsed.error.message };
  if (parsed.data.nonce === nonce) return { record: parsed.data, unusable: null };
  return { record: null, unusable: 'it is of another attempt' };
}

/**
 * The exit record of this nonce. What is no file, or not one of ours, is no record.
 * @throws OutliveError `version_unknown` for one of a later version: it speaks, but not to us.
 * @throws Error of the system when it may be read later (EIO, EMFILE).
 */
async function readExitRecord(file: string, nonce: string): Promise<FoundRecord> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return NO_RECORD;
    if (isNoFile(error)) return { record: null, unusable: (error as Error).message };
    throw error;
  }
  const found = parseRecord(text, nonce);
  if (!('later' in found)) return found;
  throw new OutliveError(
    'version_unknown',
    `${file} has version ${found.later}, this outlive reads up to ${EXIT_RECORD_VERSION}. Start the newer outlive again.`,
  );
}

const NUMBER = /^\d+$/;

/** What an exit record says, in the words of the classification. */
export function endFromRecord(record: ExitRecord, attempt: AttemptRow): ProcessEnd {
  const status = record.exitStatus ?? '';
  const how =
    record.exitCode === 'exited' || record.exitCode === 'killed' || record.exitCode === 'dumped'
      ? record.exitCode
      : 'unknown';
  const started = attempt.opened?.uptimeSeconds ?? null;
  const elapsed =
    started !== null && record.uptimeSeconds !== null && record.bootId === attempt.opened?.bootId
      ? (record.uptimeSeconds - started) * 1000
      : null;
  return {
    witness: 'record',
    result: record.serviceResult ?? 'unknown',
    how,
    status: how === 'exited' && NUMBER.test(status) ? Number(status) : null,
    signal: how === 'killed' || how === 'dumped' ? status : null,
    elapsedMs: elapsed,
    managerState: record.managerState,
  };
}

/** What the loaded unit says; the record adds the manager's state at that moment. */
export function endFromUnit(facts: UnitFacts, record: ExitRecord | null): ProcessEnd {
  return {
    witness: 'unit',
    result: facts.result,
    how: facts.exit.how,
    status: facts.exit.status,
    signal: facts.exit.signal,
    elapsedMs: facts.exit.elapsedMs,
    managerState: record?.managerState ?? null,
  };
}

const sameManager = (a: ManagerInstance | null, b: ManagerInstance | null): boolean =>
  a === null || b === null || (a.pid === b.pid && a.startTicks === b.startTicks);

/** Clock ticks a second in /proc, as every Linux that Node runs on has them. */
const TICKS_PER_SECOND = 100;

/** It ran before this manager began, so under another one: known also of what no daemon saw run. */
function isOlderThan(opened: Opened | null, manager: ManagerInstance | null): boolean {
  const openedAt = opened?.uptimeSeconds ?? null;
  if (openedAt === null || manager === null) return false;
  return manager.startTicks / TICKS_PER_SECOND > openedAt;
}

function hostChanged(attempt: AttemptRow, host: HostFacts): boolean {
  const bootId = attempt.bootId ?? attempt.opened?.bootId ?? null;
  if (bootId !== null && bootId !== host.bootId) return true;
  return !sameManager(attempt.manager, host.manager) || isOlderThan(attempt.opened, host.manager);
}

export interface Gathered {
  readonly evidence: Evidence;
  readonly record: ExitRecord | null;
  /** Why the exit record that lies there is not believed; null when it is, or there is none. */
  readonly unusable: string | null;
  /** What unit and record disagree about, null when they agree or one is missing. */
  readonly disagreement: Readonly<Record<string, unknown>> | null;
  /** What decides what becomes of a lost attempt; null when the evidence says that it is not lost. */
  readonly loss: LossEvidence | null;
  readonly artifacts: readonly FoundArtifact[];
}

function disagreement(
  unit: ProcessEnd | null,
  record: ProcessEnd | null,
): Gathered['disagreement'] {
  if (!unit || !record) return null;
  const same =
    unit.how === record.how && unit.status === record.status && unit.signal === record.signal;
  return same ? null : { unit, record };
}

/**
 * Collects the evidence for an attempt that runs no more: its dead unit when that is
 * still loaded, the exit record, the claim, what the spool said (already ingested).
 */
export async function gatherEvidence(
  context: Context,
  attempt: AttemptRow,
  paths: AttemptPaths,
  facts: UnitFacts | null,
  host: HostFacts,
): Promise<Gathered> {
  const { record, unusable } = await readExitRecord(paths.exitRecord, attempt.nonce).catch(
    (error: unknown) => {
      // What somebody decided about it stands without any witness.
      const isLater = error instanceof OutliveError && error.code === 'version_unknown';
      if (isLater && attempt.intent !== null) return NO_RECORD;
      throw error;
    },
  );
  if (unusable !== null) {
    context.log.error({ file: paths.exitRecord, why: unusable }, 'exit record not believed');
  }
  // A unit that never ran has no end, whatever its state.
  const fromUnit = facts?.everRan ? endFromUnit(facts, record) : null;
  const fromRecord = record ? endFromRecord(record, attempt) : null;
  const workUnit = context.store.workUnits.get(attempt.workUnitId);
  const evidence: Evidence = {
    intent: attempt.intent,
    haltMarker: await hasHaltMarker(paths),
    end: fromUnit ?? fromRecord,
    opened: attempt.opened,
    lastWord: attempt.lastWord,
    saidDeadline: attempt.saidDeadline,
    saidToldToStop: attempt.toldToStop,
    approvalOpen: attempt.status === 'waiting_for_approval',
    claim: await readClaim(paths),
    startProblem: attempt.startProblem,
    hardTimeoutMs: workUnit ? timeoutsOf(workUnit, attempt).hardTimeoutMs : 0,
    hostChanged: hostChanged(attempt, host),
    ...(workUnit?.request.leftovers === 'fail' ? { leftoverPolicy: 'fail' } : {}),
  };
  const lost = classify(evidence).outcome.kind === 'lost';
  const loss = lost && workUnit ? await gatherLoss(workUnit, paths) : null;
  const artifacts = await gatherArtifacts(context, attempt);
  const differ = disagreement(fromUnit, fromRecord);
  return { evidence, record, unusable, disagreement: differ, loss, artifacts };
}
