/** Files of an attempt are damaged, or gone, while the daemon is down and the attempt's end is not committed. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { oneMoreRecord, type Round, spoolOf, target } from '../round.ts';
import { query, storeFile } from '../store-file.ts';
import { type Fault, LOST, miss, strike } from './fault.ts';

interface Victim {
  readonly key: string;
  readonly attempt: string;
  readonly spool: string;
  readonly offset: number;
  readonly record: string;
}

interface Row {
  readonly id: string;
  readonly work_unit_id: string;
  readonly handle: string;
  readonly nonce: string;
  readonly spool_offset: number;
}

/** Attempts whose end the store does not know yet. */
function open(round: Round): Victim[] {
  const { workshop } = round;
  const rows = query<Row>(
    storeFile(workshop),
    `SELECT a.id, a.work_unit_id, w.handle, a.nonce, a.spool_offset
       FROM work_unit_attempts a JOIN work_units w ON w.id = a.work_unit_id
      WHERE a.ended_at IS NULL ORDER BY a.id`,
  );
  return rows.map((row) => ({
    key: row.handle,
    attempt: row.id,
    spool: spoolOf(round, row.work_unit_id, row.id),
    offset: row.spool_offset,
    record: path.join(workshop.config.directories.exits, `${row.nonce}.json`),
  }));
}

interface Damage {
  readonly name: string;
  readonly allows?: readonly string[];
  readonly spool?: boolean;
  /** Strikes while they still run, not after they ended. */
  readonly early?: boolean;
  readonly suits: (victim: Victim) => boolean;
  readonly act: (victim: Victim, round: Round) => void;
}

const damage = ({
  name,
  allows = [],
  spool = false,
  early = false,
  suits,
  act,
}: Damage): Fault => ({
  name,
  family: 'damage',
  inject: async (round) => {
    await target(round);
    // Some of its spool may be in the store by then, or none.
    await pause(round.random.whole(0, 600));
    await round.keeper.down(async () => {
      // Work goes on without the daemon: what ends now, it has to read from files alone.
      if (!early) await oneMoreRecord(round);
      const victims = open(round).filter(suits);
      if (victims.length === 0) {
        miss(round, name, 'no attempt was open, or none had such a file');
        return;
      }
      for (const victim of victims) {
        strike(round, name, [victim.key], allows);
        if (spool) round.ledger.write({ what: 'damaged', file: 'spool', attempt: victim.attempt });
        act(victim, round);
      }
    });
  },
});

const hasUnread = ({ spool, offset }: Victim): boolean =>
  existsSync(spool) && statSync(spool).size > offset;

/** Without its last word nobody can say what the runner thought of it. */
const NO_LAST_WORD = ['failed/runner_no_result', 'failed/exit_code', 'failed/spool_lost', LOST];
/** A command's own status is in its last word; the wrapper's, which says only that it failed, is the unit's. */
const NO_RECORD = [LOST];

export const DAMAGE_FAULTS: readonly Fault[] = [
  damage({
    name: 'spool-torn',
    allows: NO_LAST_WORD,
    spool: true,
    suits: hasUnread,
    // The last line loses its end, as when the power goes between two blocks.
    act: ({ spool, offset }, { random }) => {
      const { size } = statSync(spool);
      truncateSync(spool, Math.max(offset, size - random.whole(1, 40)));
    },
  }),
  damage({
    name: 'spool-truncated',
    allows: NO_LAST_WORD,
    spool: true,
    suits: ({ offset }) => offset > 0,
    act: ({ spool, offset }, { random }) => truncateSync(spool, random.whole(0, offset - 1)),
  }),
  damage({
    name: 'spool-corrupt',
    allows: NO_LAST_WORD,
    spool: true,
    suits: hasUnread,
    act: ({ spool, offset }, { random }) => {
      const bytes = readFileSync(spool);
      const at = random.whole(offset, bytes.length - 1);
      const garbage = random.pick(['\0\0\0\0', '\n{"v":1}\n', '\xff\xfe', '\n\n', '}{']);
      bytes.write(garbage, at, 'latin1');
      writeFileSync(spool, bytes);
    },
  }),
  damage({
    name: 'spool-missing',
    allows: NO_LAST_WORD,
    spool: true,
    suits: ({ spool }) => existsSync(spool),
    act: ({ spool }) => rmSync(spool),
  }),
  damage({
    name: 'exit-missing',
    allows: NO_RECORD,
    suits: ({ record }) => existsSync(record),
    act: ({ record }) => rmSync(record),
  }),
  damage({
    name: 'exit-blocked',
    allows: NO_RECORD,
    early: true,
    suits: ({ record }) => !existsSync(record),
    act: ({ record }) => mkdirSync(record),
  }),
  damage({
    name: 'exit-foreign',
    allows: NO_RECORD,
    suits: ({ record }) => existsSync(record),
    act: ({ record }) => {
      const said = JSON.parse(readFileSync(record, 'utf8')) as Record<string, unknown>;
      writeFileSync(record, JSON.stringify({ ...said, nonce: '0'.repeat(32), exitStatus: '77' }));
    },
  }),
  damage({
    name: 'exit-torn',
    allows: NO_RECORD,
    suits: ({ record }) => existsSync(record),
    act: ({ record }, { random }) => truncateSync(record, random.whole(0, 60)),
  }),
  damage({
    name: 'runtime-swept',
    // Pi reads its extension from there while it starts.
    allows: ['failed/runner_error'],
    suits: () => true,
    // Somebody tidies the runtime directory: control sockets are gone, attempts are not.
    act: (_, { workshop }) => {
      const { runtime } = workshop.config.directories;
      for (const name of readdirSync(runtime)) {
        if (name !== 'api') rmSync(path.join(runtime, name), { recursive: true });
      }
    },
  }),
];
