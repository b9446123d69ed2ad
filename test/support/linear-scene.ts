/** A daemon that is a Linear agent, with real Pi, and the double of Linear around it. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { STORE_FILE } from '../../src/store/open.ts';
import { freePort } from './installed.ts';
import { type LinearDouble, startLinearDouble } from './linear-double/server.ts';
import type { Activity, Session } from './linear-double/world.ts';
import { type DaemonProcess, Rig, within } from './rig.ts';

/** What ends a turn in a session. */
const LAST: ReadonlySet<string> = new Set(['response', 'error']);

export interface StoredTurn {
  readonly id: string;
  readonly session: string;
  readonly kind: string;
  readonly state: string;
  readonly workUnitId: string | null;
  readonly prompt: string;
}

export class LinearScene {
  readonly rig: Rig;
  readonly linear: LinearDouble;
  readonly #port: number;

  private constructor(rig: Rig, linear: LinearDouble, port: number) {
    this.rig = rig;
    this.linear = linear;
    this.#port = port;
    linear.webhooks.url = `http://127.0.0.1:${port}/linear/webhook`;
  }

  /** @param section further keys of `linear` in config.json. */
  static async create(
    options: { withoutSystemd?: boolean; section?: object } = {},
  ): Promise<LinearScene> {
    const rig = await Rig.create(options);
    const linear = await startLinearDouble({ runs: true });
    const scene = new LinearScene(rig, linear, await freePort());
    scene.configure(options.section ?? {});
    return scene;
  }

  configure(section: object, more: object = {}): void {
    const { rig, linear } = this;
    const secret = (name: string, value: string): string => {
      const file = path.join(rig.base, name);
      writeFileSync(file, `${value}\n`, { mode: 0o600 });
      return file;
    };
    const { configFile } = rig.config.directories;
    mkdirSync(path.dirname(configFile), { recursive: true });
    const config = {
      linear: {
        webhookSecretFile: secret('webhook-secret', linear.webhooks.secret),
        organizationId: linear.world.organization.id,
        clientId: linear.oauth.clientId,
        clientSecretFile: secret('client-secret', linear.oauth.clientSecret),
        url: linear.url,
        model: 'lab/scripted',
        cwd: rig.tree,
        ...section,
      },
      ...more,
    };
    writeFileSync(configFile, JSON.stringify(config));
  }

  startDaemon(options: Parameters<Rig['startDaemon']>[0] = {}): Promise<DaemonProcess> {
    const env = { ...options.env, OUTLIVE_PORT: String(this.#port) };
    return this.rig.startDaemon({ ...options, env });
  }

  /** Somebody mentions the agent in an issue; Linear's webhook of it is delivered. */
  async begin(text: string, issue = this.linear.world.addIssue()): Promise<Session> {
    const session = this.linear.world.startSession('mention', issue, text);
    await this.deliver(this.linear.webhooks.created(session));
    return session;
  }

  /** Somebody writes into a session. */
  prompt(session: Session, text: string): Promise<void> {
    return this.deliver(this.linear.webhooks.prompted(session, text));
  }

  stop(session: Session): Promise<void> {
    return this.deliver(this.linear.webhooks.stop(session));
  }

  /** @throws when it was not answered 200. */
  async deliver(delivery: Parameters<LinearDouble['webhooks']['send']>[0]): Promise<void> {
    const { ok, status, error } = await this.linear.webhooks.send(delivery);
    if (!ok) throw new Error(`a webhook was answered ${status} (${error})`);
  }

  /** What the agent has said in a session; without what was replaced. */
  words(session: Session): Activity[] {
    const { world } = this.linear;
    return world.seen(session.id).filter(({ userId }) => userId === world.app.id);
  }

  /** All last words of a session, in order. */
  lastWords(session: Session): string[] {
    return this.words(session)
      .filter(({ content }) => LAST.has(content.type))
      .map(({ content }) => `${content.type}: ${String(content['body'])}`);
  }

  /** Once a session has so many last words. */
  async concluded(session: Session, count = 1): Promise<string[]> {
    await this.#until(`${count} last words`, () => this.lastWords(session).length >= count);
    return this.lastWords(session);
  }

  /** Once the agent has said something that passes. */
  async hears(session: Session, what: string, passes: (one: Activity) => boolean): Promise<void> {
    await this.#until(what, () => this.words(session).some(passes));
  }

  async #until(what: string, test: () => boolean): Promise<void> {
    const wait = async (): Promise<void> => {
      while (!test()) await this.linear.waitFor(({ effective }) => effective && test());
    };
    await within(what, wait()).catch((error: unknown) => {
      const said = this.linear.world.activities.map(({ content }) => content);
      throw new Error(`${String(error)}; said so far: ${JSON.stringify(said)}`);
    });
  }

  /** Turns as they are on the disk, in the order they were made. */
  turns(): StoredTurn[] {
    const file = path.join(this.rig.config.directories.store, STORE_FILE);
    const db = new Database(file, { readonly: true });
    try {
      return db
        .prepare<[], StoredTurn>(
          `SELECT id, session_id AS session, kind, state, work_unit_id AS workUnitId, prompt
           FROM linear_turns ORDER BY id`,
        )
        .all();
    } finally {
      db.close();
    }
  }

  /** The work unit of the only turn of a session that has one and is open. */
  running({ id }: Session): string {
    const turn = this.turns().find(
      ({ session, state }) => session === id && (state === 'running' || state === 'queued'),
    );
    if (!turn?.workUnitId)
      throw new Error(`nothing runs for ${id}: ${JSON.stringify(this.turns())}`);
    return turn.workUnitId;
  }

  /** Session files of Pi's that belong to a session of Linear's, with their content. */
  conversations(): { readonly file: string; readonly text: string }[] {
    const { sessions } = this.rig.config.directories;
    return readdirSync(sessions, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.jsonl'))
      .map((name) => ({ file: name, text: readFileSync(path.join(sessions, name), 'utf8') }));
  }

  async end(): Promise<void> {
    await this.rig.end();
    await this.linear.close();
  }
}
