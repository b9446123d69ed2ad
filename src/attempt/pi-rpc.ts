/**
 * The Pi CLI in RPC mode as a child: commands out, answers and events in, one JSON
 * object per line (Pi's docs/rpc.md). Knows nothing of what a run means.
 */
import type { Capture } from './capture.ts';
import { within } from './clock.ts';
import { isObject, type JsonObject, parseJson, stringOf } from './json.ts';
import { LineSplitter, LineTooLong } from './jsonl.ts';
import { drainOutput } from './output-drain.ts';
import { type Program, type ProgramEnd, startProgram } from './program.ts';

// Pi's largest lines are agent_end's: all messages of a run in one.
const LINE_END = Buffer.from('\n');
const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** What became of a request. */
export type Answer =
  | { readonly kind: 'ok'; readonly data: unknown }
  /** Pi refused; its own message. */
  | { readonly kind: 'refused'; readonly message: string }
  | { readonly kind: 'late' }
  /** Pi ended before it answered. */
  | { readonly kind: 'gone' };

export interface PiRpcOptions {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly umask: number;
  readonly environment: Readonly<Record<string, string>>;
  readonly stdout: Capture;
  readonly stderr: Capture;
  readonly onEvent: (event: JsonObject) => void;
  /** Something that is not the protocol; `fatal` when nothing sensible can follow. */
  readonly onViolation: (what: string, fatal: boolean) => void;
}

export class PiRpc {
  readonly #program: Program;
  readonly #options: PiRpcOptions;
  readonly #lines = new LineSplitter(MAX_LINE_BYTES);
  readonly #waiting = new Map<string, (answer: Answer) => void>();
  #requests = 0;
  #bytes = 0;
  /** Settles when Pi has ended and all it said was read. Never rejects. */
  readonly ended: Promise<ProgramEnd>;

  constructor(options: PiRpcOptions) {
    this.#options = options;
    this.#program = startProgram(options.argv, { ...options, stdin: 'pipe' });
    const { stdin, stdout, stderr } = this.#program.child;
    stdout?.on('data', (chunk: Buffer) => this.#read(chunk));
    stderr?.on('data', (chunk: Buffer) => options.stderr.push(chunk));
    // EPIPE: Pi ended, which `ended` tells.
    for (const stream of [stdin, stdout, stderr]) stream?.on('error', () => {});
    this.ended = this.#end();
  }

  /** 0 when Pi could not be started. */
  get pid(): number {
    return this.#program.pid;
  }

  /** Sends a command and waits for its answer; `ms` null where only other deadlines count. */
  async request(type: string, fields: JsonObject, ms: number | null): Promise<Answer> {
    this.#requests += 1;
    const id = `outlive-${this.#requests}`;
    const answer = new Promise<Answer>((resolve) => {
      this.#waiting.set(id, resolve);
    });
    this.send({ ...fields, id, type });
    const gone = this.ended.then((): Answer => ({ kind: 'gone' }));
    const first = Promise.race([answer, gone]);
    const got = ms === null ? await first : await within(first, ms);
    this.#waiting.delete(id);
    return got === 'late' ? { kind: 'late' } : got;
  }

  /** Sends a record that has no answer. */
  send(record: JsonObject): void {
    const stdin = this.#program.child.stdin;
    if (stdin?.writable) stdin.write(`${JSON.stringify(record)}\n`);
  }

  /** End of input: Pi aborts what runs, closes its session and exits. */
  closeInput(): void {
    this.#program.child.stdin?.end();
  }

  /** A signal to Pi alone for SIGTERM (it ends its own children), to its whole group for SIGKILL. */
  kill(signal: 'SIGTERM' | 'SIGKILL'): void {
    if (signal === 'SIGKILL') this.#program.killGroup(signal);
    else this.#program.child.kill(signal);
  }

  async #end(): Promise<ProgramEnd> {
    const { child, ended, closed } = this.#program;
    const { stderr } = this.#options;
    const end = await ended;
    if (end.error === null) await drainOutput(child, closed, () => this.#bytes + stderr.seen);
    return end;
  }

  #read(chunk: Buffer): void {
    this.#bytes += chunk.length;
    try {
      for (const line of this.#lines.push(chunk)) this.#take(line);
    } catch (error) {
      if (!(error instanceof LineTooLong)) throw error;
      this.#program.child.stdout?.destroy();
      this.#options.onViolation(error.message, true);
    }
  }

  #take(line: Buffer): void {
    const record = parseJson(line.toString('utf8'));
    this.#capture(line, isObject(record) ? record['type'] : null);
    if (!isObject(record) || typeof record['type'] !== 'string') {
      this.#options.onViolation(`not a record: ${line.toString('utf8', 0, 200)}`, false);
    } else if (record['type'] === 'response') {
      this.#answer(record);
    } else {
      this.#options.onEvent(record);
    }
  }

  /** Deltas are left out: each is a record, and a secret over two of them could not be seen. */
  #capture(line: Buffer, type: unknown): void {
    if (type === 'message_update') return;
    this.#options.stdout.push(line);
    this.#options.stdout.push(LINE_END);
  }

  #answer(record: JsonObject): void {
    const resolve = this.#waiting.get(stringOf(record['id']) ?? '');
    const message = stringOf(record['error']) ?? 'Pi refused without a reason';
    if (record['success'] === true) resolve?.({ kind: 'ok', data: record['data'] });
    else if (resolve) resolve({ kind: 'refused', message });
    else if (record['command'] === 'parse') this.#options.onViolation(message, false);
  }
}
