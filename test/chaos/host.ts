/** Drives one private host from outside (ops/scripts/host), as root. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { HOST_REGISTRY, rootEntry } from '../support/private-host.ts';
import { ROOT } from '../support/rig.ts';

const SCRIPT = path.join(ROOT, 'ops/scripts/host');
const run = promisify(execFile);

/** What `ops/scripts/host` ends with where no private host can be had. */
export const NOT_POSSIBLE = 77;

export class HostFailure extends Error {
  readonly status: number;
  constructor(verb: string, status: number, said: string) {
    super(`ops/scripts/host ${verb} ended with ${status}: ${said}`);
    this.status = status;
  }
}

const PREFIX = 'chaos-';

/** Hosts of runners that were killed before they could throw them away. */
export function orphanedHosts(): Host[] {
  if (!existsSync(HOST_REGISTRY)) return [];
  return readdirSync(HOST_REGISTRY)
    .filter((name) => name.startsWith(PREFIX) && !existsSync(`/proc/${name.slice(PREFIX.length)}`))
    .map((name) => new Host(name));
}

export class Host {
  readonly name: string;

  /** The host of this very process. */
  static own(): Host {
    return new Host(`${PREFIX}${process.pid}`);
  }

  constructor(name: string) {
    this.name = name;
  }

  /** The home directory of its user, seen from outside. */
  get home(): string {
    return path.join(HOST_REGISTRY, this.name, 'home');
  }

  up(): Promise<void> {
    return this.#verb('up');
  }
  /** Power cut. */
  crash(): Promise<void> {
    return this.#verb('crash');
  }
  reboot(): Promise<void> {
    return this.#verb('reboot');
  }
  down(): Promise<void> {
    return this.#verb('down');
  }

  /** Starts a command inside as its user; stdin and stdout are pipes. */
  exec(...command: readonly string[]): ChildProcess {
    return spawn(SCRIPT, ['exec', this.name, '--', ...command], {
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  }

  /** Runs a command inside as root. */
  async root(...command: readonly string[]): Promise<void> {
    await run('nsenter', rootEntry(this.name, command), { timeout: 120_000 });
  }

  async #verb(verb: string): Promise<void> {
    const child = spawn(SCRIPT, [verb, this.name], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    // Its exit, not the end of its stderr: what `up` leaves behind must not be waited for.
    const [code] = (await once(child, 'exit')) as [number | null];
    if (code !== 0) throw new HostFailure(verb, code ?? -1, said.trim());
  }
}
