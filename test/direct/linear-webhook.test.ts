/** Linear's webhooks and the life of the real daemon: its start, its end, and its death. */
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { STORE_FILE } from '../../src/store/open.ts';
import { type Answer, refused, send, type Target } from '../support/api-http.ts';
import { freePort } from '../support/installed.ts';
import { createdBody, delivery, promptedBody, SECRET } from '../support/linear-webhooks.ts';
import { appears, type DaemonProcess, Rig, said, within } from '../support/rig.ts';

let rig: Rig;
let secretFile: string;
beforeEach(async () => {
  rig = await Rig.create({ withoutSystemd: true });
  secretFile = path.join(rig.base, 'linear-secret');
  writeFileSync(secretFile, `${SECRET}\n`, { mode: 0o600 });
  configure({ webhookSecretFile: secretFile });
});
afterEach(async () => {
  await rig.end();
});

function configure(linear: object): void {
  const { configFile } = rig.config.directories;
  mkdirSync(path.dirname(configFile), { recursive: true });
  writeFileSync(configFile, JSON.stringify({ linear }));
}

const socket = (): Target => ({ socketPath: rig.config.directories.apiSocket });
const on = (port: number) => ({ env: { OUTLIVE_PORT: String(port) } });

interface Row {
  readonly session_id: string;
  readonly state: string;
  readonly repeats: number;
}

/** The ledger as it is on the disk, whoever has it open. */
function ledger(): Row[] {
  const db = new Database(path.join(rig.config.directories.store, STORE_FILE), { readonly: true });
  try {
    return db
      .prepare<[], Row>('SELECT session_id, state, repeats FROM linear_deliveries ORDER BY id')
      .all();
  } finally {
    db.close();
  }
}

const row = (session: string, repeats = 0): Row => ({
  session_id: session,
  state: 'new',
  repeats,
});

const ended = (daemon: DaemonProcess): Promise<number | NodeJS.Signals> =>
  within('the daemon to end', daemon.exited);

describe('AC3: the middle of a shutdown', () => {
  const unsigned = { 'linear-signature': '0'.repeat(64) };

  it('AC3: a signed webhook is stored and there for the next daemon, an unsigned one refused; row 198, row 291, row 294', async () => {
    const port = await freePort();
    const daemon = await rig.startDaemon({
      env: { ...on(port).env, OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '60000' },
    });
    await rig.submit({ argv: ['sh', '-c', ': > begun; until [ -e go ]; do sleep 0.05; done'] });
    await appears(path.join(rig.tree, 'begun'));
    daemon.kill('SIGTERM');
    await within('the daemon to wait', said(daemon, 'the shutdown waits for attempts'));
    await expect(rig.submit({ argv: ['true'] })).rejects.toMatchObject({ code: 'shutting_down' });

    for (const target of [{ port }, socket()]) {
      const name = 'port' in target ? 'by-tcp' : 'by-socket';
      expect((await send(target, delivery(createdBody(name)))).status).toBe(200);
      const answer = await send(target, delivery(createdBody('bad'), { headers: unsigned }));
      expect(refused(answer)).toMatchObject({ status: 401, code: 'webhook_refused' });
    }
    expect(ledger()).toEqual([row('by-tcp'), row('by-socket')]);
    writeFileSync(path.join(rig.tree, 'go'), '');
    expect(await ended(daemon)).toBe(0);
    expect(daemon.output()).not.toMatch(/"level":(?:50|60)/);

    await rig.startDaemon();
    expect((await send(socket(), delivery(createdBody('by-tcp')))).status).toBe(200);
    expect(ledger()).toEqual([row('by-tcp', 1), row('by-socket')]);
  });

  it('AC3: hammered from its start to its end: what was answered 200 is there', async () => {
    const port = await freePort();
    const daemon = await rig.startDaemon(on(port));
    const hammer = startHammer({ port }, 'h');
    await within('a hundred answers', hammer.acknowledged(100));
    daemon.kill('SIGTERM');
    expect(await ended(daemon)).toBe(0);
    const acknowledged = await hammer.stop();
    expectAllThere(acknowledged);
  });
});

describe('a daemon that is killed', () => {
  it('AC3: at any moment has stored what it answered 200, over ten deaths', async () => {
    const port = await freePort();
    for (let death = 0; death < 10; death++) {
      const daemon = await rig.startDaemon(on(port));
      const hammer = startHammer({ port }, `death${death}`);
      // Another moment each time, in answers and not in milliseconds: so it is while it works.
      await within('some answers', hammer.acknowledged(7 + 13 * death));
      daemon.kill('SIGKILL');
      await ended(daemon);
      expectAllThere(await hammer.stop());
    }
    expect(ledger().every(({ repeats }) => repeats === 0)).toBe(true);
  });

  it('and never answered is stored by the repeat, once', async () => {
    const port = await freePort();
    const first = await rig.startDaemon(on(port));
    const call = delivery(promptedBody('s', 'p'));
    const answer = send({ port }, call).catch(() => null);
    first.kill('SIGKILL');
    await ended(first);
    await answer;
    await rig.startDaemon(on(port));
    expect((await send({ port }, call)).status).toBe(200);
    expect(ledger()).toHaveLength(1);
  });
});

describe('a daemon that is starting', () => {
  it('stores webhooks as soon as its store is open, while all else is told to wait', async () => {
    // A bus that takes the connection and says nothing: recovery cannot begin.
    const silent = net.createServer(() => undefined).listen(path.join(rig.base, 'bus'));
    await once(silent, 'listening');
    try {
      const port = await freePort();
      const daemon = rig.spawnDaemon({
        env: {
          ...on(port).env,
          OUTLIVE_EXECUTOR: 'systemd',
          DBUS_SESSION_BUS_ADDRESS: `unix:path=${path.join(rig.base, 'bus')}`,
        },
      });
      await within('the bus to be asked', once(silent, 'connection'));
      const answer = await send({ port }, { path: '/runtime', headers: bearer() });
      expect(refused(answer)).toMatchObject({ status: 503, code: 'starting' });
      expect((await send({ port }, delivery(createdBody('early')))).status).toBe(200);
      expect(ledger()).toEqual([row('early')]);
      daemon.kill('SIGKILL');
      await ended(daemon);
    } finally {
      silent.close();
    }
  });

  it('with a store it cannot read answers 503, so that Linear comes again', async () => {
    const { store } = rig.config.directories;
    mkdirSync(store, { recursive: true });
    writeFileSync(path.join(store, STORE_FILE), 'no store at all');
    await rig.startDaemon();
    const answer = await send(socket(), delivery(createdBody('s')));
    expect(refused(answer)).toMatchObject({ status: 503, code: 'store_unavailable' });
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
    const unsigned = delivery(createdBody('s'), { secret: 'another' });
    expect(refused(await send(socket(), unsigned)).status).toBe(401);
  });

  it.each([
    ['without its secret', () => rmSync(secretFile), 'cannot be read'],
    ['with an empty one', () => writeFileSync(secretFile, '\n'), 'is empty'],
    ['with none named', () => configure({}), 'needs webhookSecretFile or webhookSecretCredential'],
    [
      'with a credential that nobody handed over',
      () => configure({ webhookSecretCredential: 'linear' }),
      '$CREDENTIALS_DIRECTORY/linear',
    ],
  ])('%s refuses by name, and says nothing of its content', async (_name, spoil, words) => {
    spoil();
    const daemon = rig.spawnDaemon();
    expect(await ended(daemon)).toBe(2);
    expect(daemon.output()).toContain('config_unreadable');
    expect(daemon.output()).toContain(words);
  });

  it('takes its secret from a credential of its unit', async () => {
    configure({ webhookSecretCredential: 'linear-secret' });
    await rig.startDaemon({ env: { CREDENTIALS_DIRECTORY: rig.base } });
    expect((await send(socket(), delivery(createdBody('s')))).status).toBe(200);
  });
});

function bearer(): { authorization: string } {
  const token = readFileSync(path.join(rig.config.directories.token, 'api-token'), 'utf8').trim();
  return { authorization: `Bearer ${token}` };
}

interface Hammer {
  /** Resolves once so many were answered 200. */
  acknowledged(count: number): Promise<void>;
  /** Sends no more. @returns the sessions of all that were answered 200. */
  stop(): Promise<readonly string[]>;
}

const LANES = 6;

/** Delivers from several connections without a pause, each a session of its own. */
function startHammer(target: Target, prefix: string): Hammer {
  const acknowledged: string[] = [];
  const reached = new Map<number, () => void>();
  let goesOn = true;
  const lane = async (number: number): Promise<void> => {
    for (let n = 0; goesOn; n++) {
      const session = `${prefix}-${number}-${n}`;
      const answer: Answer | null = await send(target, delivery(createdBody(session))).catch(
        () => null,
      );
      if (answer?.status !== 200) return; // The daemon is at its end.
      acknowledged.push(session);
      reached.get(acknowledged.length)?.();
    }
  };
  const lanes = Promise.all(Array.from({ length: LANES }, (_, number) => lane(number)));
  return {
    acknowledged: (count) => {
      if (acknowledged.length >= count) return Promise.resolve();
      return new Promise((resolve) => reached.set(count, resolve));
    },
    stop: async () => {
      goesOn = false;
      await within('the answers that are under way', lanes);
      return acknowledged;
    },
  };
}

function expectAllThere(acknowledged: readonly string[]): void {
  const stored = new Set(ledger().map(({ session_id: session }) => session));
  expect(acknowledged.filter((session) => !stored.has(session))).toEqual([]);
}
