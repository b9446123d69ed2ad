/** Linear's webhooks on a socket that systemd keeps: through restarts and deaths of the daemon. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { STORE_FILE } from '../../src/store/open.ts';
import { send } from '../support/api-http.ts';
import { freePort, install, property, service, uninstall } from '../support/installed.ts';
import { createdBody, delivery, SECRET } from '../support/linear-webhooks.ts';
import { Rig, systemctl, within } from '../support/rig.ts';

let rig: Rig;
let port: number;
beforeAll(async () => {
  rig = await Rig.create();
  const secret = path.join(rig.base, 'linear-secret');
  writeFileSync(secret, SECRET);
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify({ linear: { webhookSecretFile: secret } }));
  port = await freePort();
  await install(rig, '--port', String(port));
});
afterAll(async () => {
  await uninstall(rig);
  await rig.end();
});

/** Sessions in the ledger, and how often each came again. */
function ledger(): ReadonlyMap<string, number> {
  const db = new Database(path.join(rig.config.directories.store, STORE_FILE), { readonly: true });
  const rows = db
    .prepare<[], { session: string; repeats: number }>(
      'SELECT session_id AS session, repeats FROM linear_deliveries',
    )
    .all();
  db.close();
  return new Map(rows.map(({ session, repeats }) => [session, repeats]));
}

const deliver = (session: string) => send({ port }, delivery(createdBody(session)));

/** Delivers from several connections until told to stop. @returns the status of each, by session. */
function keepDelivering(prefix: string): { stop: () => Promise<ReadonlyMap<string, number>> } {
  const statuses = new Map<string, number>();
  let goesOn = true;
  const lane = async (number: number): Promise<void> => {
    for (let n = 0; goesOn; n++) {
      const session = `${prefix}-${number}-${n}`;
      const answer = await deliver(session).catch(() => null);
      statuses.set(session, answer?.status ?? 0);
    }
  };
  const lanes = Promise.all([lane(1), lane(2), lane(3)]);
  return {
    stop: async () => {
      goesOn = false;
      await within('every answer', lanes);
      return statuses;
    },
  };
}

describe('the socket unit', () => {
  it('takes webhooks without a token, and starts the daemon for one', async () => {
    await systemctl('stop', service(rig));
    expect((await deliver('wakes')).status).toBe(200);
    expect(await property(service(rig), 'ActiveState')).toBe('active');
    expect(ledger().get('wakes')).toBe(0);
  });

  it('AC3: through ten restarts every webhook is answered 200 and stored once; row 198', async () => {
    const delivering = keepDelivering('restart');
    for (let restart = 0; restart < 10; restart++) await systemctl('restart', service(rig));
    const statuses = await delivering.stop();
    expect(statuses.size).toBeGreaterThan(30);
    expect([...new Set(statuses.values())]).toEqual([200]);
    const stored = ledger();
    expect([...statuses.keys()].filter((session) => stored.get(session) !== 0)).toEqual([]);
  });

  it('AC3: through SIGKILL after SIGKILL what was answered 200 is stored once', async () => {
    const delivering = keepDelivering('killed');
    for (let kills = 0; kills < 4; kills++) {
      const before = await property(service(rig), 'MainPID');
      await systemctl('kill', '-s', 'KILL', '--kill-who=main', service(rig));
      await expect
        .poll(() => property(service(rig), 'MainPID'), { timeout: 20_000 })
        .not.toMatch(new RegExp(`^(?:0|${before})$`));
      expect((await deliver(`after-${kills}`)).status).toBe(200);
    }
    const statuses = await delivering.stop();
    const stored = ledger();
    const answered = [...statuses].filter(([, status]) => status === 200);
    expect(answered.length).toBeGreaterThan(10);
    expect(answered.filter(([session]) => stored.get(session) !== 0)).toEqual([]);
    // Cut off by a SIGKILL, or answered 200: nothing else happens to a webhook.
    expect([...new Set(statuses.values())].every((status) => [0, 200].includes(status))).toBe(true);
  });
});
