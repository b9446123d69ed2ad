/** A latch for hints: "something may have changed". Waiting always has a deadline. */

export interface Hint {
  /** Marks that something may have changed; remembered if nobody waits. */
  raise(): void;
  /** Resolves at the next (or an unseen) raise, or after `ms`. Clears the mark. */
  wait(ms: number): Promise<void>;
}

export function createHint(): Hint {
  let raised = false;
  let wake: (() => void) | null = null;
  return {
    raise: () => {
      raised = true;
      wake?.();
    },
    wait: (ms) =>
      new Promise((resolve) => {
        const timer = setTimeout(done, raised ? 0 : ms);
        function done(): void {
          clearTimeout(timer);
          raised = false;
          wake = null;
          resolve();
        }
        wake = done;
        if (raised) done();
      }),
  };
}
