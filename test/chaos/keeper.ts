/** Keeps a daemon running the way its unit would: whenever it ends, it is started again. */
import { type ChildProcess, spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ROOT, within } from '../support/rig.ts';
import type { Ledger } from './ledger.ts';
import type { Workshop } from './workshop.ts';

/** As RestartSec of a unit: what fails at once must not spin. */
const RESTART_MS = 150;

interface Life {
  readonly child: ChildProcess;
  readonly armed: string | null;
  readonly ended: Promise<string>;
  readonly ready: Promise<void>;
  /** Its end was our doing. */
  wanted: boolean;
  /** We sent it SIGKILL ourselves. */
  killed: boolean;
  isReady: boolean;
}

export interface Arming {
  readonly point: string;
  /** At its `count`-th pass in the first life; at the first in those after it. */
  readonly count: number;
}

export class Keeper {
  /** More of the daemon's environment. */
  readonly extra: Record<string, string> = {};
  readonly #workshop: Workshop;
  readonly #ledger: Ledger;
  #arming: Arming | null;
  #life: Life | null = null;
  #held = 0;
  #closed = false;
  #wake: () => void = () => undefined;
  #loop: Promise<void> = Promise.resolve();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(workshop: Workshop, ledger: Ledger, arming: Arming | null) {
    this.#workshop = workshop;
    this.#ledger = ledger;
    this.#arming = arming;
  }

  start(): void {
    this.#loop = this.#keep();
  }

  get pid(): number | null {
    return this.#life?.child.pid ?? null;
  }

  /** The point that is armed and was not reached. */
  get armed(): string | null {
    return this.#arming?.point ?? null;
  }

  /** Resolves when the daemon of now has ended. */
  async lifeEnds(): Promise<void> {
    await this.#life?.ended;
  }

  disarm(): void {
    this.#arming = null;
  }

  /** Resolves when a daemon has said that it is ready, this one or one after it. */
  async ready(): Promise<void> {
    const someone = async (): Promise<void> => {
      for (;;) {
        const life = this.#life;
        if (!life) await this.#change();
        else if (
          await life.ready.then(
            () => true,
            () => false,
          )
        )
          return;
        else await life.ended;
      }
    };
    await within('a daemon to be ready', someone());
  }

  /** Ends the daemon by a signal and resolves with how it ended; null when none was there. */
  async end(signal: NodeJS.Signals): Promise<string | null> {
    const life = this.#life;
    if (!life) return null;
    life.wanted = true;
    life.killed ||= signal === 'SIGKILL';
    life.child.kill('SIGCONT');
    life.child.kill(signal);
    return within(`the daemon to end by ${signal}`, life.ended);
  }

  signal(signal: NodeJS.Signals): void {
    this.#life?.child.kill(signal);
  }

  /** As {@link signal}, but only to a daemon that is ready: one that starts may have no handler yet. */
  tell(signal: NodeJS.Signals): void {
    if (this.#life?.isReady) this.#life.child.kill(signal);
  }

  /** Runs `act` while no daemon runs; one at a time. */
  down<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(async () => {
      this.#held += 1;
      try {
        await this.end('SIGKILL');
        return await act();
      } finally {
        this.#held -= 1;
        this.#wake();
      }
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /** Ends the last daemon in order. */
  async close(): Promise<string | null> {
    this.#closed = true;
    const how = await this.end('SIGTERM');
    this.#wake();
    await this.#loop;
    return how;
  }

  #change(): Promise<void> {
    return Promise.race([
      pause(RESTART_MS),
      new Promise<void>((resolve) => {
        const before = this.#wake;
        this.#wake = () => {
          before();
          resolve();
        };
      }),
    ]);
  }

  async #keep(): Promise<void> {
    for (let life = 0; !this.#closed; life++) {
      if (this.#held > 0) {
        await this.#change();
        continue;
      }
      const how = await this.#live(life);
      if (how !== 'SIGKILL') await pause(RESTART_MS);
    }
  }

  async #live(number: number): Promise<string> {
    const armed = this.#arming
      ? `${this.#arming.point}:${number === 0 ? this.#arming.count : 1}`
      : null;
    const child = spawn(process.execPath, [path.join(ROOT, 'dist/main.js')], {
      env: {
        ...this.#workshop.env,
        ...this.extra,
        ...(armed === null ? {} : { OUTLIVE_FAULT: armed }),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const life = this.#follow(child, armed);
    this.#life = life;
    this.#ledger.write({ what: 'daemon', pid: child.pid ?? -1, armed });
    this.#wake();
    const how = await life.ended;
    this.#life = null;
    return how;
  }

  #follow(child: ChildProcess, armed: string | null): Life {
    const log = path.join(this.#workshop.logs, `daemon-${child.pid}.log`);
    let said: string | null = null;
    let begun = (): void => undefined;
    const ready = new Promise<void>((resolve, reject) => {
      begun = resolve;
      child.once('exit', () => reject(new Error('the daemon ended before it was ready')));
    });
    ready.catch(() => undefined);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      appendFileSync(log, text);
      if (!text.includes('"msg":"ready"')) return;
      life.isReady = true;
      begun();
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      appendFileSync(log, text);
      said = text.trim().split('\n').at(-1) ?? said;
    });
    const ended = new Promise<string>((resolve) => {
      child.once('close', (code, signal) => {
        const how = signal ?? String(code);
        if (how === 'SIGKILL' && !life.killed && armed !== null) this.#reached(life);
        const { wanted } = life;
        this.#ledger.write({ what: 'daemon_ended', pid: child.pid ?? -1, how, wanted, said });
        resolve(how);
      });
    });
    const life: Life = { child, armed, ended, ready, wanted: false, killed: false, isReady: false };
    return life;
  }

  #reached(life: Life): void {
    if (!this.#arming) return;
    life.wanted = true;
    this.#ledger.write({ what: 'point', name: this.#arming.point });
    this.#arming = null;
  }
}
