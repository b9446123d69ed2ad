/** Takes a request in: validated, idempotent, queued. */
import { statSync } from 'node:fs';
import path from 'node:path';
import { canonicalJson } from '../domain/canonical-json.ts';
import { OutliveError } from '../domain/errors.ts';
import { randomHandle, uuidv7 } from '../domain/ids.ts';
import { type StartWorkUnit, startWorkUnitSchema } from '../domain/request.ts';
import type { Maker, TimeoutPolicy } from '../domain/work-unit.ts';
import { defaultTimeouts, TERMINAL_STATUSES } from '../domain/work-unit.ts';
import type { ChannelPolicy, ChannelRow } from '../store/channels.ts';
import type { WorkUnitRow } from '../store/work-units.ts';
import { findBlocker } from './admission.ts';
import { type Claim, makeAttempt } from './claim.ts';
import type { Context } from './context.ts';
import { resolveAfter } from './dependencies.ts';
import { cancelWithin } from './end.ts';
import { memoryGate } from './gates.ts';
import { needsOf, providerOf } from './needs.ts';
import { requireResultSchema } from './result-schema.ts';
import { requireSandbox } from './sandbox.ts';
import type { Transaction } from './writer.ts';

const DEFAULT_CHANNEL: ChannelPolicy = {
  status: 'active',
  maxConcurrentRuns: 1,
  onNewerSubject: 'queue',
};

export interface Submission {
  readonly workUnit: WorkUnitRow;
  /** False when the idempotency key had been used for the same request before. */
  readonly created: boolean;
  /** Made and claimed in one step, because it would not wait; to be launched. */
  readonly claim: Claim | null;
  /** Attempts that were told to end because this work supersedes theirs. */
  readonly superseded: readonly string[];
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

/** The stored request as this build would store it: a newer one may know more fields. */
function comparable({ request }: WorkUnitRow): string {
  const parsed = startWorkUnitSchema.safeParse(request);
  return canonicalJson(parsed.success ? parsed.data : request);
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
  if (comparable(found) === request) return found;
  throw new OutliveError(
    'idempotency_mismatch',
    `Idempotency key "${key}" was used for another request (work unit "${found.handle}"). Use a new key.`,
    { extra: { workUnitId: found.id } },
  );
}

interface Stored {
  readonly key: string;
  readonly request: string;
  readonly cwd: string;
  readonly policy: TimeoutPolicy;
  readonly actor: Maker;
}

/** The model that is named, else its preset's; null for the person's own default. */
function modelOf({ settings }: Context, input: StartWorkUnit): string | null {
  if (input.runnerId !== 'pi') return null;
  const preset = settings.policies.presets[input.providerPresetId ?? ''];
  return input.model ?? (preset ? `${preset.provider}/${preset.model}` : null);
}

function insert(
  context: Context,
  transaction: Transaction,
  input: StartWorkUnit,
  stored: Stored,
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
    model: modelOf(context, input),
    channelId: input.channelId ?? null,
    taskId: input.taskId ?? null,
    teammateId: input.teammateId ?? null,
    providerPresetId: providerOf(input),
    externalSubject: input.externalSubject ?? null,
    conversation: input.runnerId === 'pi' ? (input.conversation ?? null) : null,
    at: transaction.at,
  });
  context.store.resources.insertNeeds(id, needsOf(input, stored.cwd));
  const who = { actor: stored.actor, data: { handle, runnerId: input.runnerId } };
  transaction.append(id, [
    { type: 'work_unit.created', ...who },
    { type: 'work_unit.queued', ...who },
  ]);
  return transaction.workUnit(id);
}

/** The channel's row, made with defaults at its first use. @throws OutliveError `channel_closed`. */
function requireOpenChannel(context: Context, transaction: Transaction, id: string): ChannelRow {
  const { channels } = context.store;
  if (!channels.get(id)) channels.put(id, DEFAULT_CHANNEL, transaction.at);
  const channel = channels.get(id);
  if (!channel) throw new Error(`channel ${id} vanished inside a transaction`);
  if (channel.status === 'active') return channel;
  throw new OutliveError(
    'channel_closed',
    `Channel "${id}" is ${channel.status}. Resume it first: outlive channels resume ${id}.`,
    { extra: { channelId: id, status: channel.status } },
  );
}

/** Deals with older live work on the same subject. @returns attempts that were told to end. */
function meetOlderSubject(
  context: Context,
  transaction: Transaction,
  input: StartWorkUnit,
  channel: ChannelRow | null,
): string[] {
  const { externalSubject } = input;
  if (externalSubject === undefined) return [];
  const older = context.store.workUnits.listBySubject(externalSubject);
  const policy = input.onNewerSubject ?? channel?.onNewerSubject ?? 'queue';
  const [first] = older;
  if (policy === 'queue' || !first) return []; // The subject's lease keeps them apart.
  if (policy === 'block') {
    throw new OutliveError(
      'subject_busy',
      `${first.handle} (${first.status}) already works on ${externalSubject}.`,
      { extra: { workUnitId: first.id, status: first.status } },
    );
  }
  const request = {
    actor: 'scheduler',
    reason: `superseded by newer work on ${externalSubject}`,
  } as const;
  return older.flatMap(
    ({ id }) => cancelWithin(context, transaction, id, request).activeAttemptId ?? [],
  );
}

/** For work that would not wait: claimed at once, or refused. @throws OutliveError `resource_busy`. */
function claimNow(context: Context, transaction: Transaction, workUnit: WorkUnitRow): Claim {
  const { resources, channels } = context.store;
  const admission = channels.admission();
  const blocker = findBlocker(context, workUnit.id, resources.needsOf(workUnit.id));
  const held = blocker?.reason ?? memoryGate(context)?.reason;
  const reason = admission === 'open' ? held : `the workspace is ${admission}`;
  if (reason === undefined) return makeAttempt(context, transaction, workUnit);
  throw new OutliveError('resource_busy', `It cannot start now: ${reason}.`, {
    extra: { heldBy: blocker?.heldBy ?? null },
  });
}

export interface SubmitOptions {
  readonly idempotencyKey?: string | undefined;
  readonly actor: Maker;
  /** Stores with the new work unit, in its transaction, what depends on it; not for a key used before. */
  readonly within?: (transaction: Transaction, workUnit: WorkUnitRow) => void;
}

/**
 * Stores a work unit, or returns the one this idempotency key already made.
 * @throws OutliveError `invalid_request` (a result schema that is none, or of `after`),
 * `not_found` (of `after`), `cwd_missing`, `handle_taken`, `idempotency_mismatch`, `channel_closed`,
 * `subject_busy`, `sandbox_unavailable`, `resource_busy` (only with queueOnConflict=false), or the store's.
 */
export function submit(context: Context, input: StartWorkUnit, options: SubmitOptions): Submission {
  const { actor } = options;
  const key = options.idempotencyKey ?? input.idempotencyKey ?? uuidv7(context.entropy);
  const cwd = path.resolve(input.cwd ?? context.settings.home);
  const policy = timeouts(input);
  const request = storedRequest(input, cwd, policy);
  const again = (workUnit: WorkUnitRow): Submission => ({
    workUnit,
    created: false,
    claim: null,
    superseded: [],
  });
  const replay = earlier(context, input, key, request);
  if (replay) return again(replay);
  requireResultSchema(input);
  requireDirectory(cwd);
  requireSandbox(context, input);
  return context.writer.commit((transaction) => {
    // Again inside the transaction: the check above was outside it.
    const raced = earlier(context, input, key, request);
    if (raced) return again(raced);
    if (input.handle) requireFreeHandle(context, input.handle);
    const channel =
      input.channelId === undefined
        ? null
        : requireOpenChannel(context, transaction, input.channelId);
    const superseded = meetOlderSubject(context, transaction, input, channel);
    const storeAfter = resolveAfter(context.store, input.after, input.handle);
    const workUnit = insert(context, transaction, input, { key, request, cwd, policy, actor });
    storeAfter(workUnit.id);
    options.within?.(transaction, workUnit);
    const claim = input.queueOnConflict ? null : claimNow(context, transaction, workUnit);
    return { workUnit: claim?.workUnit ?? workUnit, created: true, claim, superseded };
  });
}
