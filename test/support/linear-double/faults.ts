/** What is to go wrong, and for which calls. */

export type Fault =
  /** Answers with this HTTP status; `body` is sent as it is, `location` as that header. */
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly body?: string;
      readonly location?: string;
    }
  /** Takes the request, does nothing, never answers. */
  | { readonly kind: 'hang' }
  /** Does nothing and breaks the connection. */
  | { readonly kind: 'cut' }
  /** Does what was asked, and breaks the connection instead of answering. */
  | { readonly kind: 'lost' }
  /** Does nothing and answers `success: false`, without an error. */
  | { readonly kind: 'unsuccessful' }
  /** Answers after `ms`. */
  | { readonly kind: 'late'; readonly ms: number }
  /** RATELIMITED with any HTTP status (400 by default); `retryAfter` in seconds. */
  | { readonly kind: 'rate_limited'; readonly status?: number; readonly retryAfter?: number }
  /** Takes the token for a bad one. */
  | { readonly kind: 'unauthorized' };

interface Planned {
  readonly name: string;
  readonly fault: Fault;
  left: number;
}

export class Faults {
  #planned: Planned[] = [];

  /**
   * The next `times` calls of this name meet the fault. Names are those of the journal
   * (`agentActivityCreate`, `issue`, `token`); `*` is any of the API.
   */
  next(name: string, fault: Fault, times = 1): void {
    this.#planned.push({ name, fault, left: times });
  }

  /** Every call of this name from now on, until `clear`. */
  always(name: string, fault: Fault): void {
    this.next(name, fault, Number.POSITIVE_INFINITY);
  }

  clear(): void {
    this.#planned = [];
  }

  /** The one that this call meets, which is used up by it. */
  take(name: string): Fault | null {
    const isApi = name !== 'token' && name !== 'revoke';
    const found = this.#planned.find((one) => one.name === name || (isApi && one.name === '*'));
    if (found === undefined) return null;
    found.left--;
    if (found.left <= 0) this.#planned = this.#planned.filter((one) => one !== found);
    return found.fault;
  }
}
