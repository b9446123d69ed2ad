/** The daemon of a run and its attempts, and what kills them. */
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../../chaos/random.ts';
import type { LinearScene } from '../../support/linear-scene.ts';
import type { DaemonProcess } from '../../support/rig.ts';
import { killDirectAttempt, killDirectAttempts } from '../../support/without-systemd.ts';
import { readAttempts } from './evidence.ts';

/** A work unit is gone on with after so many losses in an hour, and one more waits for a person. */
const LOSSES = 3;

/** In the order they happened, milliseconds since the epoch. */
export interface Blow {
  readonly at: number;
  readonly what: string;
}

export class Keeper {
  readonly blows: Blow[] = [];
  /** What each daemon wrote, in order. */
  readonly daemons: DaemonProcess[] = [];
  /** A daemon that ended by itself. */
  readonly died: string[] = [];
  readonly #scene: LinearScene;
  readonly #random: Random;

  constructor(scene: LinearScene, random: Random) {
    this.#scene = scene;
    this.#random = random;
  }

  async start(): Promise<void> {
    const suspends = this.#random.chance(0.3);
    const env = suspends ? { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '1000' } : {};
    this.daemons.push(await this.#scene.startDaemon({ env }));
  }

  /** Ends the daemon and starts another. */
  async restart(signal: 'SIGTERM' | 'SIGKILL', meanwhile = async () => {}): Promise<void> {
    const daemon = this.daemons.at(-1);
    const isOver = await Promise.race([daemon?.exited, Promise.resolve(null)]);
    if (isOver !== null) this.died.push(`a daemon ended by itself: ${isOver}`);
    daemon?.kill(signal);
    await daemon?.exited;
    await meanwhile();
    await this.start();
  }

  /** One blow every few seconds until `signal` says so; the daemon runs when it resolves. */
  async mayhem(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(this.#random.whole(2_000, 7_000), undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await this.#blow();
    }
  }

  async #blow(): Promise<void> {
    const random = this.#random;
    const dice = random.next();
    const down = (): Promise<void> => pause(random.pick([0, 0, 200, 1_500]));
    if (dice < 0.35) return this.#strike('SIGKILL', () => this.restart('SIGKILL', down));
    if (dice < 0.6) return this.#strike('SIGTERM', () => this.restart('SIGTERM', down));
    if (dice < 0.85) return this.#killOne();
    return this.#cutPower();
  }

  async #strike(what: string, act: () => Promise<void>): Promise<void> {
    this.blows.push({ at: Date.now(), what });
    await act();
    this.blows.push({ at: Date.now(), what: `${what}: over` });
  }

  /** Attempts that may be lost once more. */
  #fragile() {
    const { config } = this.#scene.rig;
    const attempts = readAttempts(config.directories.store);
    const running = attempts.filter(({ endedAt }) => endedAt === null);
    const mayEnd = ({ number }: { readonly number: number }): boolean => number <= LOSSES;
    return { running, fragile: running.filter(mayEnd) };
  }

  async #killOne(): Promise<void> {
    const { fragile } = this.#fragile();
    if (fragile.length === 0) return;
    const { unit } = this.#random.pick(fragile);
    const { direct } = this.#scene.rig.config.directories;
    await this.#strike(`attempt ${unit} killed`, () => killDirectAttempt(direct, unit));
  }

  /** No process is left, nor a record of its end. */
  async #cutPower(): Promise<void> {
    const { running, fragile } = this.#fragile();
    if (running.length !== fragile.length) return;
    const { rig } = this.#scene;
    await this.#strike('power cut', () =>
      this.restart('SIGKILL', async () => {
        await killDirectAttempts(rig.config.directories.direct);
        for (const record of readdirSync(rig.exitRecords())) {
          rmSync(path.join(rig.exitRecords(), record), { recursive: true });
        }
      }),
    );
  }
}
