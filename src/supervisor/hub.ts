/**
 * Tells whoever listens what has been committed. Delivery takes part in no decision:
 * a listener that misses something reads the store.
 */
import type { EventRow } from '../store/events.ts';

export type HubListener = (events: readonly EventRow[]) => void;

export interface Hub {
  publish(events: readonly EventRow[]): void;
  /** @returns the unsubscribe. */
  subscribe(listener: HubListener): () => void;
}

export function createHub(onError: (error: unknown) => void): Hub {
  const listeners = new Set<HubListener>();
  return {
    publish: (events) => {
      if (events.length === 0) return;
      for (const listener of listeners) {
        try {
          listener(events);
        } catch (error) {
          onError(error); // One bad listener must not cost the others their events.
        }
      }
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
