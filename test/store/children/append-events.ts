/** Appends events to a work unit, one per transaction. argv: directory, work unit id, count, name */
import { once } from 'node:events';
import { openStore } from '../../../src/store/store.ts';

const [, , directory = '', workUnitId = '', count = '0', name = ''] = process.argv;
const say = (word: Record<string, unknown>) => process.stdout.write(`${JSON.stringify(word)}\n`);

const store = openStore(directory, 'main', new Date().toISOString());
say({ ready: true });
await once(process.stdin, 'data');
process.stdin.unref();
const seqs: number[] = [];
for (let index = 0; index < Number(count); index++) {
  const event = {
    workUnitId,
    attemptId: null,
    ts: new Date().toISOString(),
    type: 'work_unit.progress' as const,
    actor: 'system' as const,
    data: { name, index },
  };
  seqs.push(...store.write(() => store.events.append(workUnitId, [event])).map(({ seq }) => seq));
}
store.close();
say({ seqs });
