/** The store comes back as an older copy of itself: a person restored a backup. */
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { copyStore, storeFile } from '../store-file.ts';
import { ANY, type Fault, miss, strike } from './fault.ts';

/** Everything that happened since may be done again, by a daemon that cannot know better. */

export const STORE_FAULTS: readonly Fault[] = [
  {
    name: 'store-restored',
    family: 'alone',
    inject: async (round) => {
      const { workshop, ledger, keeper, random } = round;
      const file = storeFile(workshop);
      const copy = path.join(workshop.base, 'backup.db');
      if (!existsSync(file)) {
        miss(round, 'store-restored', 'there is no store yet');
        return;
      }
      await copyStore(file, copy);
      await pause(random.whole(200, 1_500));
      await keeper.down(async () => {
        strike(round, 'store-restored', 'all', [ANY]);
        ledger.write({ what: 'damaged', file: 'store' });
        // The log of the newer store must not be played onto the older one.
        for (const suffix of ['-wal', '-shm']) rmSync(`${file}${suffix}`, { force: true });
        copyFileSync(copy, file);
      });
    },
  },
];
