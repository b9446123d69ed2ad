/** An `errorCode` with the sentence behind it. */
import type { OutcomeState } from '../domain/outcome.ts';
import { describeOutcome, type OutcomeCode } from '../domain/outcome-codes.ts';

/** `code: sentence (message)`; a code of a newer daemon has no sentence. */
export function outcomeText(code: string, message: string | null): string {
  const sentence = describeOutcome(code as OutcomeCode) as string | undefined;
  if (sentence === undefined) return message === null ? code : `${code}: ${message}`;
  // Messages often begin with the sentence and add what is particular.
  if (message?.startsWith(sentence)) return `${code}: ${message}`;
  return `${code}: ${sentence}${message === null ? '' : ` (${message})`}`;
}

export interface ToldOutcome {
  readonly state: OutcomeState;
  readonly code: string | null;
}

/** `blocked(verify_not_run)`; a state without a code as it is. */
export const outcomeName = ({ state, code }: ToldOutcome): string =>
  code === null ? state : `${state}(${code})`;

/** The same with its sentence. */
export const outcomeLine = (outcome: ToldOutcome & { readonly message: string | null }): string =>
  outcome.message === null ? outcomeName(outcome) : `${outcomeName(outcome)}: ${outcome.message}`;
