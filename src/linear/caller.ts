/** One call of the API: budget, token, request, verdict; a refused token is renewed once. */
import type { Logger } from 'pino';
import type { Entropy } from '../domain/ids.ts';
import { judge, type RawAnswer, type Verdict } from './answer.ts';
import type { Tokens } from './auth.ts';
import type { Budget } from './budget.ts';
import { postGraphql } from './graphql.ts';
import { LinearError, type Priority } from './port.ts';

export interface CallerParts {
  readonly url: string;
  readonly tokens: Tokens;
  readonly budget: Budget;
  readonly entropy: Pick<Entropy, 'monotonic'>;
  readonly log: Logger;
  /** For one request, milliseconds. */
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

export interface CallInput {
  /** The field that is asked for; also the name of the call in the log. */
  readonly field: string;
  readonly document: string;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly priority: Priority;
}

/** What a call that was answered came to; everything else is a LinearError. */
export type Called = Extract<Verdict, { kind: 'data' | 'conflict' | 'not_found' }>;

export class Caller {
  readonly #parts: CallerParts;

  constructor(parts: CallerParts) {
    this.#parts = parts;
  }

  /** @throws LinearError. */
  async call(input: CallInput): Promise<Called> {
    const { budget, entropy, log } = this.#parts;
    const { field, priority } = input;
    budget.begin(field, priority);
    const began = entropy.monotonic();
    try {
      return await this.#attempt(input, true);
    } catch (error) {
      // Who asked decides how bad it is, and tells.
      const problem = error instanceof LinearError ? error.problem : null;
      const ms = Math.round(entropy.monotonic() - began);
      log.debug({ call: field, ms, problem }, 'a call of Linear failed');
      throw error;
    } finally {
      budget.ended();
    }
  }

  async #attempt(input: CallInput, mayRenew: boolean): Promise<Called> {
    const { tokens } = this.#parts;
    const token = await tokens.current();
    const answer = await postGraphql({ ...this.#parts, ...input, token });
    const verdict = judge(answer, input.field);
    if (verdict.kind !== 'unauthenticated') return this.#settle(input, answer, verdict, token);
    tokens.reject(token, verdict.message);
    if (mayRenew) return await this.#attempt(input, false);
    throw new LinearError({ kind: 'auth', message: `Linear takes no token: ${verdict.message}` });
  }

  #settle(
    { field }: CallInput,
    answer: RawAnswer,
    verdict: Exclude<Verdict, { kind: 'unauthenticated' }>,
    token: string,
  ): Called {
    const { budget, tokens } = this.#parts;
    if (verdict.kind === 'rate_limited') {
      const retryAt = budget.refused(field, answer.headers);
      throw new LinearError({ kind: 'rate_limited', retryAt });
    }
    budget.observe(field, answer.headers);
    if (verdict.kind === 'transient' || verdict.kind === 'rejected') {
      const message = verdict.message.replaceAll(token, '[token]');
      throw new LinearError({ ...verdict, message });
    }
    budget.accepted();
    tokens.accepted();
    return verdict;
  }
}
