/** What people do in a run, and how Linear tells of it: dealt from a seed. Pure. */
import { Random } from '../../chaos/random.ts';
import type { Again } from '../../support/linear-double/webhooks.ts';

/** How one thing that a person did is told. */
export interface Sending {
  /** Its webhook never comes: only a sweep can find it. */
  readonly never: boolean;
  readonly delayMs: number;
  /** It comes again, so long after it was done, whatever was answered. */
  readonly again: readonly { readonly afterMs: number; readonly how: Again }[];
}

/** What a person waits for before they do it. */
export type Wait = { readonly kind: 'answered' } | { readonly kind: 'ms'; readonly ms: number };

export interface Deed {
  readonly kind: 'created' | 'prompt' | 'stop';
  /** In no other deed; a stop has none, it is a name only. */
  readonly word: string;
  readonly wait: Wait;
  /** What a person writes. */
  readonly text: string;
  readonly sending: Sending;
}

export interface SessionPlan {
  readonly number: number;
  /** After its issue's first, milliseconds. */
  readonly startMs: number;
  readonly deeds: readonly Deed[];
}

export interface IssuePlan {
  readonly number: number;
  readonly sessions: readonly SessionPlan[];
}

/** In front of the word in a text of a person's: where it stands the word was said to the model. */
export const SAID = 'The word is ';

const padded = (n: number): string => String(n).padStart(3, '0');

/** Work that takes a while, and says if anybody works on the issue meanwhile. */
function work(random: Random, issue: number, word: string): string {
  const seconds = random.pick(['0', '0.1', '0.5', '1', '2']);
  const alone = `exec 8>>lock-${issue}; flock -n 8 || echo ${issue} ${word} >> together`;
  return `bash ${alone}; sleep ${seconds}`;
}

const MANNERS: readonly ((random: Random, issue: number, word: string) => readonly string[])[] = [
  () => [],
  (random, issue, word) => [work(random, issue, word)],
  (random, issue, word) => [`think About ${issue}. ;; ${work(random, issue, word)}`],
  (random, issue, word) => [work(random, issue, word), 'read nothing-here'],
  () => ['slow 20 20 Slowly it dawns on me. ;; bash true'],
  (random, issue, word) => [1, 2, 3].map(() => work(random, issue, word)),
];

/** Whoever goes on after the answer was given but not told gives it again. */
const REPEATS = 8;

function textOf(random: Random, issue: number, word: string): string {
  const lines = random.pick(MANNERS)(random, issue, word);
  const answers = Array.from({ length: REPEATS }, () => `say ${word}`);
  return [`Please. ${SAID}${word}.`, '#script', ...lines, ...answers, '#end', ''].join('\n');
}

function sendingOf(random: Random): Sending {
  const never = random.chance(0.07);
  const delayMs = random.chance(0.6) ? 0 : random.whole(50, random.pick([400, 1_500, 4_000]));
  const times = random.pick([0, 0, 0, 1, 1, 2]);
  const again = Array.from({ length: times }, () => ({
    afterMs: delayMs + random.pick([0, 5, 1_100, 3_000]),
    how: random.pick(['identical', 'restamped'] as const),
  }));
  return { never, delayMs, again };
}

function waitOf(random: Random): Wait {
  if (random.chance(0.45)) return { kind: 'answered' };
  return { kind: 'ms', ms: random.pick([0, 30, 300, 1_000, 2_500, 4_000]) };
}

function dealSession(random: Random, issue: number, number: number, isFirst: boolean): SessionPlan {
  const deeds: Deed[] = [];
  const add = (kind: Deed['kind']): void => {
    const word = `w${padded(number)}x${deeds.length}${kind === 'stop' ? 'stop' : 'z'}`;
    const text = kind === 'stop' ? 'Stop' : textOf(random, issue, word);
    const wait = kind === 'created' ? ({ kind: 'ms', ms: 0 } as const) : waitOf(random);
    deeds.push({ kind, word, wait, text, sending: sendingOf(random) });
  };
  add('created');
  const prompts = random.pick([0, 0, 1, 1, 1, 2, 2, 3, 4]);
  for (let n = 0; n <= prompts; n++) {
    if (n > 0) add('prompt');
    if (random.chance(0.15)) add('stop');
    if (random.chance(0.02)) add('stop');
  }
  return { number, startMs: isFirst ? 0 : random.whole(0, 5_000), deeds };
}

/** So many sessions over fewer issues. */
export function dealIssues(seed: string, sessions: number): IssuePlan[] {
  const issues: IssuePlan[] = [];
  for (let made = 0; made < sessions; ) {
    const number = issues.length + 1;
    const random = new Random(`${seed}/${number}`);
    const count = Math.min(sessions - made, random.pick([1, 1, 1, 2, 2, 3]));
    const plans = Array.from({ length: count }, (_, index) =>
      dealSession(random, number, made + index + 1, index === 0),
    );
    issues.push({ number, sessions: plans });
    made += count;
  }
  return issues;
}
