/** Takes a request in: validated, idempotent, queued. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { canonicalJson } from '../domain/canonical-json.ts';
import { OutliveError } from '../domain/errors.ts';
import { randomHandle, uuidv7 } from '../domain/ids.ts';
import type { StartWorkUnit } from '../domain/request.ts';
import type { Actor, TimeoutPolicy } from '../domain/work-unit.ts';
import { defaultTimeouts, TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import type { Context } from './context.ts';
import type { Transaction } from './writer.ts';

export interface Submission {
  readonly workUnit: WorkUnitRow;
  /** False when the idempotency key had been used for the same request before. */
  readonly created: boolean;
}

function timeouts(input: StartWorkUnit): TimeoutPolicy {
  const given = Object.entries(input.timeoutPolicy ?? {}).filter(
    ([, value]) => value !== undefined,
  );
  return { ...defaultTimeouts(input.kind), ...Object.fromEntries(given) };
}

/**
 * What an idempotency key stands for: the request after defaults, without what the
 * server may choose (a generated handle) and without who happened to send it.
 */
function storedRequest(input: StartWorkUnit, cwd: string, policy: TimeoutPolicy): string {
  const { idempotencyKey: _key, createdByClientId: _client, ...rest } = input;
  return canonicalJson({ ...rest, cwd, timeoutPolicy: policy });
}

/** @throws OutliveError `cwd_missing`, naming the field. */
function requireDirectory(cwd: string): void {
  const refuse = (reason: string): OutliveError =>
    new OutliveError('cwd_missing', `${cwd}: ${reason}. Give an existing directory.`, {
      fields: [{ path: '/cwd', message: reason }],
    });
  let isDirectory: boolean;
  try {
    isDirectory = statSync(cwd).isDirectory();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw refuse(code === 'ENOENT' ? 'it does not exist' : `it cannot be read (${code})`);
  }
  if (!isDirectory) throw refuse('it is not a directory');
}

function requireFreeHandle(context: Context, handle: string): void {
  const holder = context.store.workUnits.getByHandle(handle);
  if (!holder || TERMINAL_STATUSES.has(holder.status)) return;
  throw new OutliveError(
    'handle_taken',
    `Handle "${handle}" belongs to a work unit that is ${holder.status}. Choose another, or cancel that one.`,
    { extra: { workUnitId: holder.id, status: holder.status } },
  );
}

function freeRandomHandle(context: Context): string {
  for (;;) {
    const handle = randomHandle(context.entropy);
    if (!context.store.workUnits.getByHandle(handle)) return handle;
  }
}

function earlier(
  context: Context,
  input: StartWorkUnit,
  key: string,
  request: string,
): WorkUnitRow | null {
  const { kind, ownerType, ownerId } = input;
  const found = context.store.workUnits.getByKey({
    workspaceId: context.workspace,
    kind,
    ownerType,
    ownerId,
    idempotencyKey: key,
  });
  if (!found) return null;
  if (canonicalJson(found.request) === request) return found;
  throw new OutliveError(
    'idempotency_mismatch',
    `Idempotency key "${key}" was used for another request (work unit "${found.handle}"). Use a new key.`,
    { extra: { workUnitId: found.id } },
  );
}

function insert(
  context: Context,
  transaction: Transaction,
  input: StartWorkUnit,
  stored: { key: string; request: string; cwd: string; policy: TimeoutPolicy; actor: Actor },
): WorkUnitRow {
  const id = uuidv7(context.entropy);
  const handle = input.handle ?? freeRandomHandle(context);
  context.store.workUnits.insert({
    id,
    workspaceId: context.workspace,
    handle,
    kind: input.kind,
    ownerType: input.ownerType,
    ownerId: input.ownerId,
    runnerId: input.runnerId,
    idempotencyKey: stored.key,
    priority: input.priority,
    createdByClientId: input.createdByClientId ?? null,
    createdByActor: stored.actor,
    requestJson: stored.request,
    timeoutPolicyJson: JSON.stringify(stored.policy),
    cwd: stored.cwd,
    model: input.runnerId === 'pi' ? (input.model ?? null) : null,
    at: transaction.at,
  });
  const who = { actor: stored.actor, data: { handle, runnerId: input.runnerId } };
  transaction.append(id, [
    { type: 'work_unit.created', ...who },
    { type: 'work_unit.queued', ...who },
  ]);
  return transaction.workUnit(id);
}

/**
 * Stores a work unit, or returns the one this idempotency key already made.
 * @throws OutliveError `cwd_missing`, `handle_taken`, `idempotency_mismatch`, or the store's.
 */
export function submit(
  context: Context,
  input: StartWorkUnit,
  options: { idempotencyKey?: string | undefined; actor: Actor },
): Submission {
  const key = options.idempotencyKey ?? input.idempotencyKey ?? uuidv7(context.entropy);
  const cwd = path.resolve(input.cwd ?? context.settings.home);
  const policy = timeouts(input);
  const request = storedRequest(input, cwd, policy);
  const replay = earlier(context, input, key, request);
  if (replay) return { workUnit: replay, created: false };
  requireDirectory(cwd);
  return context.writer.commit((transaction) => {
    // Again inside the transaction: the check above was outside it.
    const raced = earlier(context, input, key, request);
    if (raced) return { workUnit: raced, created: false };
    if (input.handle) requireFreeHandle(context, input.handle);
    const workUnit = insert(context, transaction, input, {
      key,
      request,
      cwd,
      policy,
      actor: options.actor,
    });
    return { workUnit, created: true };
  });
}
