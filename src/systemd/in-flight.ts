/**
 * A cap on calls under way. dbus-daemon disconnects nobody but refuses calls past
 * its limit of pending replies per connection (max_replies_per_connection), and the
 * manager answers in order anyway: the rest wait here.
 */
export class InFlight {
  readonly #limit: number;
  #running = 0;
  readonly #waiting = new Set<() => void>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Calls `run` as soon as there is room, perhaps at once; {@link leave} must follow.
   * Returns the withdrawal: true when `run` was not called yet and now never will be.
   */
  enter(run: () => void): () => boolean {
    if (this.#running < this.#limit) {
      this.#running += 1;
      run();
      return () => false;
    }
    this.#waiting.add(run);
    return () => this.#waiting.delete(run);
  }

  leave(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#running -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
