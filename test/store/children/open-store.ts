/** Opens the store when it is told to, says how that went, and ends. argv: directory */
import { once } from 'node:events';
import { OutliveError } from '../../../src/domain/errors.ts';
import { openStore } from '../../../src/store/store.ts';

const say = (word: Record<string, unknown>) => process.stdout.write(`${JSON.stringify(word)}\n`);

say({ ready: true });
await once(process.stdin, 'data');
process.stdin.unref();
try {
  const store = openStore(process.argv[2] ?? '', 'main', new Date().toISOString());
  say({ schemaVersion: store.schemaVersion });
  store.close();
} catch (error) {
  say({
    code: error instanceof OutliveError ? error.code : 'raw',
    message: (error as Error).message,
  });
}
