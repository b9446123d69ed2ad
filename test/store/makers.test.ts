import path from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { startWorkUnitSchema } from '../../src/domain/request.ts';
import { MAKERS } from '../../src/domain/work-unit.ts';
import { submit } from '../../src/supervisor/submit.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open, raw } from './rig.ts';

afterEach(cleanUp);

it('row 025: the maker of a work unit is a user, the system or the scheduler, and is told so', () => {
  expect(MAKERS).toEqual(['user', 'system', 'scheduler']);
  const rig = new QueueRig(open());
  for (const actor of MAKERS) {
    const request = startWorkUnitSchema.parse({
      runnerId: 'command',
      argv: ['true'],
      ownerId: 'ada',
      cwd: '/',
      idempotencyKey: actor,
    });
    const { workUnit } = submit(rig.context, request, { actor });
    expect(rig.store.workUnits.get(workUnit.id)?.createdByActor).toBe(actor);
    const [created] = rig.store.events.page(workUnit.id, 0, 1);
    expect(created).toMatchObject({ type: 'work_unit.created', actor });
  }
});

it('row 025: a row that says another maker is not believed', () => {
  const store = open();
  const id = new QueueRig(store).submit();
  raw(path.dirname(store.file)).prepare("UPDATE work_units SET created_by_actor = 'runner'").run();
  expect(() => store.workUnits.get(id)).toThrow(/createdByActor/);
});
