/** Everything that can be known of a round afterwards, gathered for the invariants. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { sliceName } from '../../src/domain/names.ts';
import type { LedgerLine } from '../../src/store/ledger.ts';
import { type JournalLine, readJournal } from './journal.ts';
import type { Stamped } from './ledger.ts';
import type { Work } from './plan.ts';
import { loadedUnits } from './settle.ts';
import { ledgerLines, query, storeFile } from './store-file.ts';
import type { Workshop } from './workshop.ts';

export interface WorkUnitRow {
  readonly id: string;
  readonly handle: string;
  readonly status: string;
  readonly error_code: string | null;
  readonly last_seq: number;
  readonly active_attempt_id: string | null;
}

export interface AttemptRow {
  readonly id: string;
  readonly work_unit_id: string;
  readonly attempt_number: number;
  readonly unit: string;
  readonly status: string;
  readonly error_code: string | null;
  readonly intent_json: string | null;
  readonly last_word_json: string | null;
}

export interface EventRow {
  readonly position: number;
  readonly work_unit_id: string;
  readonly attempt_id: string | null;
  readonly seq: number;
  readonly ts: string;
  readonly type: string;
  readonly actor: string;
  readonly data_json: string;
}

/** One whole line of a spool. */
export interface SpoolLine {
  readonly n: number;
  readonly ts: string;
  readonly type: string;
  readonly data: unknown;
}

export interface Process {
  readonly pid: number;
  readonly cgroup: string;
  readonly command: string;
}

export interface History {
  readonly work: readonly Work[];
  readonly ledger: readonly Stamped[];
  readonly journal: readonly JournalLine[];
  readonly workUnits: readonly WorkUnitRow[];
  readonly attempts: readonly AttemptRow[];
  /** Outlive's own ledger, oldest end first. */
  readonly lines: readonly Pick<LedgerLine, 'attemptId' | 'result' | 'rc' | 'reattached'>[];
  /** In the order of the workspace. */
  readonly events: readonly EventRow[];
  /** By attempt. */
  readonly spools: Readonly<Record<string, readonly SpoolLine[]>>;
  /** `systemctl list-units` lines of units of the workspace. */
  readonly loaded: readonly string[];
  /** What runs in the slice of the workspace. */
  readonly processes: readonly Process[];
  /** Most slots of a resource that may be taken at once, by `type key`. */
  readonly limits: Readonly<Record<string, number>>;
  /** Keys of work that did not come to its end in time. */
  readonly restless: readonly string[];
  /** How the last daemon ended when it was told to. */
  readonly lastDaemon: string | null;
}

function parseSpool(file: string): SpoolLine[] {
  if (!existsSync(file)) return [];
  const whole = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  return whole.flatMap((line) => {
    try {
      return [JSON.parse(line) as SpoolLine];
    } catch {
      return []; // A damaged line: its invariant knows of the damage.
    }
  });
}

function readProcess(pid: string): Process | null {
  try {
    const cgroup = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim();
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
    return { pid: Number(pid), cgroup, command };
  } catch {
    return null; // It has ended.
  }
}

function processesIn(slice: string): Process[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(readProcess)
    .filter((found) => found !== null)
    .filter(({ cgroup }) => cgroup.includes(`/${slice}/`));
}

/** Reads files, store, units and processes; the daemon may run or not. */
export async function gatherHistory(
  workshop: Workshop,
  parts: Pick<History, 'work' | 'ledger' | 'limits' | 'restless' | 'lastDaemon'>,
): Promise<History> {
  const file = storeFile(workshop);
  const attempts = query<AttemptRow>(file, 'SELECT * FROM work_unit_attempts ORDER BY created_at');
  const { attempts: directory } = workshop.config.directories;
  return {
    ...parts,
    journal: readJournal(workshop.journal),
    workUnits: query<WorkUnitRow>(file, 'SELECT * FROM work_units'),
    attempts,
    lines: ledgerLines(file, workshop.workspace),
    events: query<EventRow>(file, 'SELECT * FROM runtime_events ORDER BY position'),
    spools: Object.fromEntries(
      attempts.map(({ id, work_unit_id }) => [
        id,
        parseSpool(path.join(directory, work_unit_id, id, 'events.jsonl')),
      ]),
    ),
    loaded: await loadedUnits(workshop),
    processes: processesIn(sliceName(workshop.workspace)),
  };
}
