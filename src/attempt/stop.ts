/** One switch that ends the runner early. The first who turns it decides why. */
import type { FailureCode } from '../domain/outcome-codes.ts';

export interface StopRequest {
  readonly by: 'SIGTERM' | 'control' | 'deadline' | 'ceiling' | 'spool' | 'crash';
  /** Time the runner has for a proper end, milliseconds. */
  readonly graceMs: number;
  /** What went wrong, null when somebody outside wanted the stop. */
  readonly code: FailureCode | null;
  /** The sentence for the last word. */
  readonly message: string;
}

export class StopSwitch {
  readonly #controller = new AbortController();
  readonly #turned = Promise.withResolvers<StopRequest>();
  #request: StopRequest | null = null;

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Resolves with the request once the switch is turned. */
  get turned(): Promise<StopRequest> {
    return this.#turned.promise;
  }

  /** Why the runner must end, null while it may go on. */
  get request(): StopRequest | null {
    return this.#request;
  }

  /**
   * Turns the switch; false when it was turned before. `record` runs in between:
   * what is told to the runner is durable first.
   */
  turn(request: StopRequest, record: () => void = () => {}): boolean {
    if (this.#request !== null) return false;
    this.#request = request;
    record();
    this.#controller.abort();
    this.#turned.resolve(request);
    return true;
  }
}
