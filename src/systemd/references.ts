/**
 * Units that this process keeps loaded after their end, so that their facts stay
 * readable. systemd counts references per bus connection and drops them with it.
 */
import { asUnavailable, refusedAs } from './bus-error.ts';
import type { Manager } from './manager.ts';

/** One of the start, one for each hold or new manager that raced with it. */
const MOST = 8;

/** False when the manager says that there is no such unit, reference or process. */
export async function unlessMissing(act: Promise<void>): Promise<boolean> {
  try {
    await act;
    return true;
  } catch (error) {
    if (refusedAs(error, 'NoSuchUnit', 'NotReferenced', 'NoSuchProcess')) return false;
    throw asUnavailable(error);
  }
}

export class References {
  readonly #manager: Manager;
  readonly #held = new Set<string>();

  constructor(manager: Manager) {
    this.#manager = manager;
  }

  has(unit: string): boolean {
    return this.#held.has(unit);
  }

  /** Notes a reference that the start itself took (AddRef=true). */
  note(unit: string): void {
    this.#held.add(unit);
  }

  /** False when no such unit is loaded. */
  async take(unit: string): Promise<boolean> {
    const there = await unlessMissing(this.#manager.refUnit(unit));
    if (there) this.#held.add(unit);
    return there;
  }

  /** Drops every reference; none is fine. */
  async drop(unit: string): Promise<void> {
    this.#held.delete(unit);
    if ((await this.#unrefAll(unit)) > 0) return;
    // References that died with the bus leave an ended unit loaded for good: only the end of
    // another one makes systemd (252) look whether it may go.
    if (await unlessMissing(this.#manager.refUnit(unit))) await this.#unrefAll(unit);
  }

  /** @returns how many there were. */
  async #unrefAll(unit: string): Promise<number> {
    let count = 0;
    while (count < MOST && (await unlessMissing(this.#manager.unrefUnit(unit)))) count++;
    return count;
  }

  /** Takes each again after a new connection or manager; a unit that is gone is forgotten. */
  async takeAgain(): Promise<void> {
    const again = [...this.#held].map(async (unit) => {
      const there = await this.take(unit).catch(() => true); // Unanswered: the next time asks again.
      if (!there) this.#held.delete(unit);
    });
    await Promise.all(again);
  }
}
