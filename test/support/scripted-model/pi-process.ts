/**
 * The real Pi in RPC mode, driven by a test: a thin, typed pipe, no interpretation.
 * It is not the product's client, so that a fault of that one cannot hide here.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

/** A line of Pi's stdout. */
export interface PiEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** What startPi takes. */
interface PiProcessOptions {
  /** PI_CODING_AGENT_DIR, as written by writePiLab. */
  readonly agentDir: string;
  /** Working directory of the tools. */
  readonly cwd: string;
  /** `rpc` (the default) takes commands; `json` runs the prompt given in `args` and ends. */
  readonly mode?: 'rpc' | 'json';
  /** Arguments after the lean set. */
  readonly args?: readonly string[];
  /** Added to an otherwise minimal environment. */
  readonly env?: Readonly<Record<string, string>>;
}

const BIN = join(import.meta.dirname, '../../../node_modules/.bin');
const LEAN = ['-ne', '-ns', '-np', '-nc', '--no-themes', '--no-mcp', '--offline', '--no-approve'];

interface Waiter {
  readonly from: number;
  readonly test: (event: PiEvent) => boolean;
  readonly resolve: (event: PiEvent) => void;
  readonly reject: (error: Error) => void;
}

/** One Pi process. */
export class PiProcess {
  /** Everything it wrote, in order. */
  readonly events: PiEvent[] = [];
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiters = new Set<Waiter>();
  readonly #exited: Promise<unknown>;
  #rest = '';
  #stderr = '';
  #commands = 0;
  #ended = false;

  constructor(child: ChildProcessWithoutNullStreams) {
    this.#child = child;
    this.#exited = once(child, 'close');
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => this.#take(chunk));
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
      this.#stderr += chunk;
    });
    // A command to a Pi that has ended; its end is what is reported, by whoever waits.
    child.stdin.on('error', () => {});
    child.once('close', () => this.#end());
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Sends a command and resolves with its response. */
  command(command: { readonly type: string; readonly [field: string]: unknown }): Promise<PiEvent> {
    const id = `c${++this.#commands}`;
    const response = this.waitFor((event) => event.type === 'response' && event.id === id);
    this.#child.stdin.write(`${JSON.stringify({ id, ...command })}\n`);
    return response;
  }

  /** Sends a prompt and resolves with the events from then on until Pi has settled. */
  async run(message: string): Promise<PiEvent[]> {
    const from = this.events.length;
    const settled = this.waitFor((event) => event.type === 'agent_settled', from);
    const accepted = this.command({ type: 'prompt', message }).then((response) => {
      if (response.success !== true) throw new Error(`refused: ${JSON.stringify(response)}`);
    });
    const [end] = await Promise.all([settled, accepted]);
    // Not to the last event: the response to an abort comes right after.
    return this.events.slice(from, this.events.indexOf(end) + 1);
  }

  /** The first event from index `from` on (by default: from now on) that passes the test. */
  waitFor(test: (event: PiEvent) => boolean, from: number = this.events.length): Promise<PiEvent> {
    const found = this.events.slice(from).find(test);
    if (found !== undefined) return Promise.resolve(found);
    if (this.#ended) return Promise.reject(this.#endError());
    return new Promise((resolve, reject) => {
      this.#waiters.add({ from, test, resolve, reject });
    });
  }

  /** Closes stdin, Pi's orderly end; resolves with the exit code (null after a signal). */
  async close(): Promise<number | null> {
    this.#child.stdin.end();
    await this.#exited;
    return this.#child.exitCode;
  }

  /** Sends a signal and waits for the end. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    this.#child.kill(signal);
    await this.#exited;
  }

  #take(chunk: string): void {
    // LF only: U+2028 occurs raw inside Pi's strings.
    const lines = (this.#rest + chunk).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#arrived(parseEvent(line));
  }

  #arrived(event: PiEvent): void {
    this.events.push(event);
    for (const waiter of this.#waiters) {
      if (!waiter.test(event)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(event);
    }
  }

  #end(): void {
    this.#ended = true;
    for (const waiter of this.#waiters) waiter.reject(this.#endError());
    this.#waiters.clear();
  }

  #endError(): Error {
    return new Error(`Pi ended: ${this.#stderr || 'no stderr'}`);
  }
}

/** Starts Pi under the repository's own Node, with nothing of the caller's environment but PATH. */
export function startPi({
  agentDir,
  cwd,
  mode = 'rpc',
  args = [],
  env = {},
}: PiProcessOptions): PiProcess {
  const argv = [join(BIN, 'pi'), '--mode', mode, ...LEAN, ...args];
  const child = spawn(join(BIN, 'node'), argv, {
    cwd,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: agentDir,
      PI_CODING_AGENT_DIR: agentDir,
      PI_OFFLINE: '1',
      ...env,
    },
  });
  if (mode === 'json') child.stdin.end();
  return new PiProcess(child);
}

function parseEvent(line: string): PiEvent {
  const value: unknown = JSON.parse(line);
  if (!isEvent(value)) throw new Error(`not an event of Pi: ${line}`);
  return value;
}

function isEvent(value: unknown): value is PiEvent {
  return (
    typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string'
  );
}
