/** What each round does, dealt from the seed alone. Pure. */
import { Random } from './random.ts';

/** Faults of one family do not meet in a round; what a family may not meet is in {@link meets}. */
export type Family =
  /** The daemon dies at a named line. */
  | 'point'
  /** Something is done to the daemon's process. */
  | 'daemon'
  /** Something is done to one attempt: its processes or its unit. */
  | 'attempt'
  | 'bus'
  | 'manager'
  | 'clock'
  /** A file system is full for a while. */
  | 'disk'
  /** Files are damaged while the daemon is down. */
  | 'damage'
  /** Done from outside the host, which may be gone afterwards. */
  | 'outside'
  /** Leaves so little to rely on that nothing else is worth checking beside it. */
  | 'alone';

export interface Card {
  readonly name: string;
  readonly family: Family;
  /** The only kind of work it can strike at. */
  readonly needs?: Manner;
}

/** A fault strikes when so many of these were seen, and a little later. */
export interface Moment {
  readonly seen: 'accepted' | 'begun' | 'ended';
  readonly count: number;
  readonly delayMs: number;
}

export interface PlannedFault {
  readonly name: string;
  readonly when: Moment;
}

export const MANNERS = ['plain', 'failing', 'stubborn', 'orphan', 'unspawnable', 'pi'] as const;
export type Manner = (typeof MANNERS)[number];

export interface Work {
  /** Idempotency key and handle. */
  readonly key: string;
  readonly manner: Manner;
  /** How long its body works, milliseconds. */
  readonly bodyMs: number;
  /** A lease that others of the round want, too; null for none. */
  readonly lease: string | null;
  readonly priority: number;
  /** Milliseconds after the one before it. */
  readonly afterMs: number;
  /** Somebody cancels it: so long after it was accepted; null for nobody. */
  readonly cancelAfterMs: number | null;
  /** Somebody retries it if it fails. */
  readonly retry: boolean;
  readonly cancelGraceMs: number;
}

export interface RoundPlan {
  readonly round: number;
  /** What the round's own randomness grows from. */
  readonly seed: string;
  readonly faults: readonly PlannedFault[];
  readonly work: readonly Work[];
}

const LEASES = ['red', 'blue'] as const;
const COMMON: readonly Manner[] = ['plain', 'plain', 'plain', 'failing', 'stubborn', 'orphan'];

function dealWork(random: Random, index: number): Work {
  const manner: Manner = random.chance(0.3)
    ? 'pi'
    : random.chance(0.08)
      ? 'unspawnable'
      : random.pick(COMMON);
  return {
    key: `w${index}`,
    manner,
    bodyMs: random.chance(0.3) ? 0 : random.whole(100, 1_800),
    lease: random.chance(0.4) ? random.pick(LEASES) : null,
    priority: random.pick([0, 0, 0, 10, -10]),
    afterMs: random.chance(0.6) ? 0 : random.whole(0, 250),
    cancelAfterMs: random.chance(0.25) ? random.whole(0, 1_200) : null,
    retry: random.chance(0.4),
    cancelGraceMs: random.pick([200, 500, 1_000]),
  };
}

/** These need something that runs. */
const AT_WORK: ReadonlySet<Family> = new Set(['attempt', 'damage', 'point', 'outside']);

function dealMoment(random: Random, { family }: Card): Moment {
  if (AT_WORK.has(family)) {
    return { seen: 'begun', count: random.whole(1, 2), delayMs: random.whole(0, 300) };
  }
  return {
    seen: random.pick(['accepted', 'begun', 'begun', 'begun', 'ended'] as const),
    count: random.whole(1, 3),
    delayMs: random.chance(0.5) ? 0 : random.whole(0, 500),
  };
}

const SHARED: ReadonlySet<Family> = new Set(['attempt']);

/** True when `family` may join a round that has these. */
export function meets(family: Family, others: readonly Family[]): boolean {
  if (others.length === 0) return true;
  if (family === 'alone' || others.includes('alone')) return false;
  if (others.includes(family)) return SHARED.has(family);
  // The small disk does not outlive its host.
  const pair = new Set([family, ...others]);
  return !(pair.has('disk') && pair.has('outside'));
}

/** The cards still to be dealt; each is dealt once before any comes again. */
class Deck {
  readonly #cards: readonly Card[];
  readonly #random: Random;
  #left: Card[] = [];

  constructor(cards: readonly Card[], random: Random) {
    this.#cards = cards;
    this.#random = random;
  }

  /** The next cards that may meet, `count` at most. */
  draw(count: number): Card[] {
    const drawn: Card[] = [];
    while (drawn.length < count) {
      if (this.#left.length === 0) this.#left = this.#random.shuffle(this.#cards);
      const families = drawn.map(({ family }) => family);
      const at = this.#left.findIndex(
        (card) => !drawn.includes(card) && meets(card.family, families),
      );
      if (at === -1) break;
      drawn.push(...this.#left.splice(at, 1));
    }
    return drawn;
  }
}

/** Work of the kinds that are needed, there long enough to be struck; the rest as it was dealt. */
function withNeeded(work: readonly Work[], needed: readonly Manner[]): Work[] {
  return work.map((item, index) => {
    const manner = needed[index];
    if (manner === undefined) return item;
    return { ...item, manner, bodyMs: 1_500, cancelAfterMs: null, priority: 10 };
  });
}

/** The rounds of a seed, one after the other, without end. */
export function* dealRounds(seed: string, cards: readonly Card[]): Generator<RoundPlan, never> {
  const deck = new Deck(cards, new Random(`${seed}/deck`));
  for (let round = 1; ; round++) {
    const own = `${seed}/${round}`;
    const random = new Random(own);
    const drawn = deck.draw(random.pick([1, 2, 2, 3, 3, 4]));
    const faults = drawn.map((card) => ({ name: card.name, when: dealMoment(random, card) }));
    const count = random.whole(5, 8);
    const work = Array.from({ length: count }, (_, index) => dealWork(random, index + 1));
    const needed = drawn.flatMap(({ needs }) => needs ?? []);
    yield { round, seed: own, faults, work: withNeeded(work, needed) };
  }
}
