// Loaded into the daemon before its own code: its wall clock, the one that src/compose.ts injects, can be set from
// outside. The monotonic clock goes on as it does when somebody sets a machine's clock; the machine's own is not touched.
import { readFileSync } from 'node:fs';

const file = process.env.OUTLIVE_CHAOS_CLOCK;
const real = Date.now;
let offset = 0;
const read = () => {
  try {
    offset = Number(readFileSync(file, 'utf8')) || 0;
  } catch {
    offset = 0; // It has not been set yet.
  }
};
read();
process.on('SIGUSR2', read);
Date.now = () => real() + offset;
