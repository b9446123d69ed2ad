/** Ctrl-C, heard and passed on. */
import { EXIT } from '../domain/errors.ts';

/** Hears SIGINT from its making to {@link Interrupts.stop}, also while nobody listens yet. */
export class Interrupts {
  #count = 0;
  #listener: (count: number) => void = () => {};
  readonly #heard = (): void => {
    this.#count += 1;
    this.#listener(this.#count);
  };

  constructor() {
    process.on('SIGINT', this.#heard);
  }

  /** Calls `listener` with 1, 2, … for each interrupt, also for those that came before. */
  listen(listener: (count: number) => void): void {
    this.#listener = listener;
    for (let count = 1; count <= this.#count; count++) listener(count);
  }

  stop(): void {
    process.off('SIGINT', this.#heard);
  }
}

/**
 * Ends this process by SIGINT itself, as a shell expects of a command that was
 * interrupted: it then stops a list (`run … && deploy`) or a loop, which an exit
 * status alone, 130 included, would not do.
 */
export function dieOfInterrupt(): number {
  process.removeAllListeners('SIGINT');
  process.kill(process.pid, 'SIGINT');
  return EXIT.cancelled; // Reached only where SIGINT is blocked.
}
