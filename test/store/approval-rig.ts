/** Pi work that asks, in a real store: for the tests of checkpoints. */
import type { Evidence, Intent } from '../../src/domain/evidence.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import { evidence } from '../property/evidence.ts';
import { QueueRig } from '../support/core-queue.ts';
import { open, temporaryDirectory } from './rig.ts';

export const PI = { runnerId: 'pi', prompt: 'go', model: 'acme/small' } as const;
const LIMITS = { provider: { acme: 1 }, runner: { pi: 4 } };
/** Two answers of a person. */
export const APPROVE = { decision: 'approved', reason: null, fail: false, actor: 'user' } as const;
export const DENY = {
  decision: 'denied',
  reason: 'not today',
  fail: false,
  actor: 'user',
} as const;
/** The host went away, and nothing tells more. */
export const GONE = evidence({ hostChanged: true, end: null, lastWord: null });

/** As the evidence of an attempt without a conversation is gathered. */
export const gathered = (known: Evidence) => ({
  evidence: known,
  record: null,
  unusable: null,
  disagreement: null,
  artifacts: [],
  loss: { session: null, cwd: { path: '/', exists: true } },
});

export interface Waiting {
  readonly rig: QueueRig;
  readonly id: string;
  readonly directory: string;
}

/** A running Pi unit. */
export function running(): Waiting {
  const directory = temporaryDirectory();
  const rig = new QueueRig(open(directory), LIMITS);
  const id = rig.submit(PI);
  rig.claimAll();
  rig.run(id);
  return { rig, id, directory };
}

/** The active attempt is gone, its spool read to the end; an order that was stored counts. */
export function lose({ rig, id }: Waiting, known: Evidence = GONE) {
  const attempt = rig.active(id);
  const intent: Intent | null = attempt.intent;
  return conclude(rig.context, attempt.id, gathered({ ...known, intent }));
}
