/** The real way in for Linear's webhooks, over the real server and the real store. */
import { Writable } from 'node:stream';
import pino from 'pino';
import { expect } from 'vitest';
import type { ApiLimits } from '../../src/api/server.ts';
import { createIngress } from '../../src/linear/ingress.ts';
import type { Store } from '../../src/store/store.ts';
import type { Answer, Target } from './api-http.ts';
import { bootApi, type Rig } from './api-rig.ts';
import { SECRET } from './linear-webhooks.ts';

export interface Ingress {
  readonly rig: Rig;
  /** Where Linear's deliveries come in by a proxy: TCP, without a token. */
  readonly tcp: Target;
  /** Times it was said that there is a new one. */
  hints(): number;
  log(): string;
}

export async function bootIngress(
  options: {
    limits?: Partial<ApiLimits>;
    organizationId?: string;
    store?: (real: Store) => Store | null;
    /** Wall clock, milliseconds since the epoch. */
    now?: () => number;
  } = {},
): Promise<Ingress> {
  let hints = 0;
  let log = '';
  const sink = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      log += chunk.toString();
      done();
    },
  });
  const { limits, organizationId = null, store: storeOf = (real) => real, now } = options;
  const rig = await bootApi(limits, undefined, undefined, ({ store, entropy }) =>
    createIngress({
      store: () => storeOf(store),
      secret: SECRET,
      organizationId,
      entropy: now ? { ...entropy, now } : entropy,
      log: pino({ level: 'trace' }, sink),
      onDelivery: () => {
        hints += 1;
      },
    }),
  );
  return { rig, tcp: { port: rig.tcp.port }, hints: () => hints, log: () => log };
}

/** Rows in the ledger. */
export const rows = ({ rig }: Ingress): number => rig.counts()['linear_deliveries'] ?? -1;

/** The only row there is. */
export function onlyRow(ingress: Ingress) {
  expect(rows(ingress)).toBe(1);
  const row = ingress.rig.store.linearDeliveries.next();
  if (!row) throw new Error('the row is not new');
  return row;
}

export const expectStored = (answer: Answer): void => {
  expect([answer.status, answer.text]).toEqual([200, '{"ok":true}']);
};
