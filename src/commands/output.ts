/** stdout and stderr as the commands see them: data on the one, talk on the other. */
import { styleText } from 'node:util';
import type { Environment } from '../config.ts';

export type Style = Parameters<typeof styleText>[0];

export interface OutputOptions {
  /** For TERM and NO_COLOR (https://no-color.org). */
  readonly env: Environment;
  /** Called once, when the reader has gone (`| head`). */
  readonly onBroken: () => void;
}

export class Output {
  readonly #stream: NodeJS.WriteStream;
  readonly #env: Environment;
  #broken = false;
  #onBroken: () => void;

  constructor(stream: NodeJS.WriteStream, { env, onBroken }: OutputOptions) {
    this.#stream = stream;
    this.#env = env;
    this.#onBroken = onBroken;
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      if (this.#broken) return;
      this.#broken = true;
      this.#onBroken();
    });
  }

  get isTerminal(): boolean {
    return Boolean(this.#stream.isTTY);
  }

  /** A terminal that understands cursor movement. */
  get canRedraw(): boolean {
    return this.isTerminal && this.#env['TERM'] !== 'dumb';
  }

  get columns(): number {
    return this.#stream.columns || 80;
  }

  /** From now on a reader that has gone is no reason to end: what else is written is dropped. */
  outliveReader(): void {
    this.#onBroken = () => {};
  }

  /** Resolves once the stream wants more, so that a slow reader slows us down. */
  async write(text: string | Uint8Array): Promise<void> {
    if (this.#broken || this.#stream.write(text)) return;
    await new Promise<void>((resolve) => {
      const settle = (): void => {
        this.#stream.off('drain', settle).off('error', settle).off('close', settle);
        resolve();
      };
      this.#stream.on('drain', settle).on('error', settle).on('close', settle);
    });
  }

  line(text = ''): Promise<void> {
    return this.write(`${text}\n`);
  }

  json(value: unknown): Promise<void> {
    return this.line(JSON.stringify(value));
  }

  /** Colour where it is wanted. */
  paint(style: Style, text: string): string {
    const isWanted = this.canRedraw && !this.#env['NO_COLOR'];
    return isWanted ? styleText(style, text, { validateStream: false }) : text;
  }
}
