/** A latch for hints: "something may have changed". Waiting always has a deadline. */

export interface Hint {
  /** Marks that something may have changed; remembered if nobody waits. */
  raise(): void;
  /** Resolves at the next (or an unseen) raise with true, or after `ms` with false. Clears the mark. */
  wait(ms: number): Promise<boolean>;
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
        const settle = (): void => {
          clearTimeout(timer);
          wake = null;
          const wasRaised = raised;
          raised = false;
          resolve(wasRaised);
        };
        const timer = setTimeout(settle, ms);
        wake = settle;
        if (raised) settle();
      }),
  };
}
