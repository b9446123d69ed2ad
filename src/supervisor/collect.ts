/** One run of retention: what is old goes, then what the disk budget does not hold. */
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { OutliveError } from '../domain/errors.ts';
import { uuidv7 } from '../domain/ids.ts';
import {
  type CompactionReason,
  cutoff,
  DELIVERY_KEPT_MS,
  type RetentionPolicy,
  whyItGoes,
} from '../domain/retention.ts';
import type { CompactableRow } from '../store/retention.ts';
import { type Compacted, compact, emptyTrash, finishCompaction } from './compact.ts';
import type { Context } from './context.ts';
import { keepReserve, spendReserve } from './reserve.ts';
import { measureTree, NOTHING, namesIn, sum, type Tally } from './trees.ts';
import { sweepUnclaimed, type Unclaimed } from './unclaimed.ts';

/** Work units read at once. */
const PAGE = 200;
/** Rows of other tables removed in one transaction. */
/** Turns of Linear's are kept at least so long, milliseconds. */
const TURN_KEPT_MS = 48 * 3_600_000;
const ROWS_AT_ONCE = 500;
/** Pages given back in one transaction: 256 KiB, a few milliseconds. */
const PAGES_AT_ONCE = 64;
/** Free pages up to this are left for what comes next. */
const PAGES_KEPT = 256;
/** A guess, for a dry run only: what an event takes in the store. */
const EVENT_BYTES = 400;

export interface CollectOptions {
  readonly dryRun: boolean;
  readonly policy: RetentionPolicy;
  /** True once the run is to end early; what is left is for the next. */
  readonly stopped: () => boolean;
}

export interface CollectReport {
  readonly dryRun: boolean;
  /** Work that ended at or before this was too old; null when nothing ever is. */
  readonly cutoff: string | null;
  readonly workUnits: Readonly<Record<CompactionReason, number>>;
  readonly events: number;
  readonly files: Tally;
  /** Keys of commands, earlier starts of the daemon, and deliveries that were worked off. */
  readonly otherRows: number;
  readonly unclaimed: Unclaimed;
  /** After the run; of a dry run as it would be. */
  readonly usage: {
    readonly fileBytes: number;
    readonly storeBytes: number;
    readonly budgetBytes: number | null;
    /** What live and just ended work alone has above the budget. */
    readonly excessBytes: number;
  };
  readonly problems: readonly string[];
}

/** Bytes on the disk, all in all and of each work unit. */
interface Usage {
  total: number;
  readonly byWorkUnit: Map<string, number>;
}

async function measure(context: Context, stopped: () => boolean): Promise<Usage> {
  const { attemptsDirectory, sessionsDirectory, exitsDirectory } = context.settings;
  const usage: Usage = { total: 0, byWorkUnit: new Map() };
  for (const directory of [attemptsDirectory, sessionsDirectory]) {
    for (const name of await namesIn(directory)) {
      if (stopped()) return usage;
      const { bytes } = await measureTree(path.join(directory, name));
      usage.byWorkUnit.set(name, (usage.byWorkUnit.get(name) ?? 0) + bytes);
      usage.total += bytes;
    }
  }
  usage.total += (await measureTree(exitsDirectory)).bytes;
  return usage;
}

/**
 * The smallest id of a delivery that is kept: whatever the age that is asked for, Linear may
 * repeat one for hours, and what the ledger has forgotten would be done again.
 */
function deliveriesBefore(cutoff: string, now: number): string {
  const at = Math.min(Date.parse(cutoff), now - DELIVERY_KEPT_MS);
  return uuidv7({ now: () => at, random: (size) => new Uint8Array(size) });
}

class Run {
  private readonly context: Context;
  private readonly options: CollectOptions;
  private readonly workUnits = { age: 0, budget: 0 };
  private readonly problems: string[] = [];
  private events = 0;
  private otherRows = 0;
  private files = NOTHING;
  /** Bytes of the store that a dry run would have freed. */
  private wouldFree = 0;

  constructor(context: Context, options: CollectOptions) {
    this.context = context;
    this.options = options;
  }

  async run(): Promise<CollectReport> {
    const { dryRun, policy, stopped } = this.options;
    const { entropy } = this.context;
    if (!dryRun) await this.finishEarlier();
    const usage = await measure(this.context, stopped);
    await this.compactAll(usage);
    const oldest = cutoff(policy, entropy.now());
    const before = oldest === null ? null : new Date(oldest).toISOString();
    const unclaimed = await sweepUnclaimed(this.context, { dryRun, before: oldest }, this.problems);
    usage.total -= unclaimed.files.bytes;
    if (!dryRun) {
      await this.attempt('other rows', () => this.dropOtherRows(before));
      await this.attempt('free pages', () => this.shrink());
      await keepReserve(this.context);
    }
    const storeBytes = this.storeBytes();
    const { budgetBytes } = policy;
    const excess = budgetBytes === null ? 0 : usage.total + storeBytes - budgetBytes;
    return {
      dryRun,
      cutoff: before,
      workUnits: this.workUnits,
      events: this.events,
      files: this.files,
      otherRows: this.otherRows,
      unclaimed,
      usage: {
        fileBytes: Math.max(0, usage.total),
        storeBytes,
        budgetBytes,
        excessBytes: Math.max(0, excess),
      },
      problems: this.problems,
    };
  }

  private storeBytes(): number {
    return Math.max(0, this.context.store.retention.usedBytes() - this.wouldFree);
  }

  private count({ events, files }: Compacted): void {
    this.events += events;
    this.files = sum(this.files, files);
  }

  private async attempt(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const isFull = error instanceof OutliveError && error.code === 'disk_full';
      if (isFull && (await spendReserve(this.context))) return this.attempt(what, work);
      // One work unit that cannot be removed must not keep the others.
      this.problems.push(`${what}: ${(error as Error).message}`);
    }
  }

  /** What a daemon before us began, or a run that met an error. */
  private async finishEarlier(): Promise<void> {
    await this.attempt('files that were set aside', async () => {
      this.files = sum(this.files, await emptyTrash(this.context));
    });
    for (const row of this.context.store.retention.pending()) {
      await this.attempt(`work unit ${row.workUnitId}`, async () => {
        this.count(await finishCompaction(this.context, row, this.options.stopped));
        this.workUnits[row.reason] += 1;
      });
    }
  }

  private async compactAll(usage: Usage): Promise<void> {
    const { policy, stopped } = this.options;
    const { entropy, store } = this.context;
    let page = store.retention.compactable(PAGE);
    while (page.length > 0) {
      for (const seen of page) {
        if (stopped()) return;
        const usedBytes = usage.total + this.storeBytes();
        const reason = whyItGoes(seen, policy, { now: entropy.now(), usedBytes });
        if (reason === null) return;
        await this.attempt(`work unit ${seen.id}`, () => this.compactOne(seen, reason, usage));
        await nextTurn();
      }
      page = store.retention.compactable(PAGE, page.at(-1));
    }
  }

  private async compactOne(
    seen: CompactableRow,
    reason: CompactionReason,
    usage: Usage,
  ): Promise<void> {
    const bytes = usage.byWorkUnit.get(seen.id) ?? 0;
    if (this.options.dryRun) {
      this.wouldFree += seen.events * EVENT_BYTES;
      this.count({ events: seen.events, files: { files: 0, bytes } });
      usage.total -= bytes;
    } else {
      const gone = await compact(this.context, seen, reason, this.options.stopped);
      if (!gone) return;
      this.count(gone);
      usage.total -= gone.files.bytes;
    }
    this.workUnits[reason] += 1;
  }

  private async dropOtherRows(before: string | null): Promise<void> {
    const { retention, linearDeliveries, linear } = this.context.store;
    if (before === null) return;
    const forgotten = deliveriesBefore(before, this.context.entropy.now());
    await this.dropAll((limit) => retention.dropCommands(before, limit));
    await this.dropAll((limit) => retention.dropInstances(before, limit));
    await this.dropAll((limit) => linearDeliveries.drop(forgotten, limit));
    // A sweep may find a prompt again for a day: what it was known by stays for longer.
    const known = new Date(this.context.entropy.now() - TURN_KEPT_MS).toISOString();
    await this.dropAll((limit) => linear.drop(before < known ? before : known, limit));
  }

  private async dropAll(drop: (limit: number) => number): Promise<void> {
    for (;;) {
      const dropped = this.context.writer.commit(() => drop(ROWS_AT_ONCE));
      this.otherRows += dropped;
      if (dropped < ROWS_AT_ONCE) break;
      await nextTurn();
    }
  }

  /** Gives the free pages back to the file system, a little at a time. */
  private async shrink(): Promise<void> {
    const { retention } = this.context.store;
    if (!retention.canShrink()) return;
    for (let free = retention.freePages(); free > PAGES_KEPT && !this.options.stopped(); ) {
      retention.giveBack(PAGES_AT_ONCE);
      await nextTurn();
      const left = retention.freePages();
      if (left >= free) break;
      free = left;
    }
    retention.settleLog();
  }
}

/** Removes what may go. Throws only for what the store says; the rest is in `problems`. */
export function collect(context: Context, options: CollectOptions): Promise<CollectReport> {
  return new Run(context, options).run();
}
