/** An `errorCode` with the sentence behind it. */
import { describeOutcome, type OutcomeCode } from '../domain/outcome-codes.ts';

/** `code: sentence (message)`; a code of a newer daemon has no sentence. */
export function outcomeText(code: string, message: string | null): string {
  const sentence = describeOutcome(code as OutcomeCode) as string | undefined;
  if (sentence === undefined) return message === null ? code : `${code}: ${message}`;
  // Messages often begin with the sentence and add what is particular.
  if (message?.startsWith(sentence)) return `${code}: ${message}`;
  return `${code}: ${sentence}${message === null ? '' : ` (${message})`}`;
}
