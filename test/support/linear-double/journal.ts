/** What the double was asked, and what it objected to. */

/** One request. Tokens are not kept. */
export interface Call {
  /** The field that was asked for (`agentActivityCreate`), `token`, `revoke`, or the path. */
  readonly name: string;
  readonly variables: Readonly<Record<string, unknown>>;
  /** Of the double's clock, ms. */
  readonly at: number;
  /** HTTP status of the answer; 0 when none was given. */
  status: number;
  /** `extensions.code` of the first error, or OAuth's `error`. */
  code: string | null;
  /** False where the answer was given up on purpose, or said `success: false`. */
  effective: boolean;
}

/** Something that a good client never sends. */
export interface Violation {
  readonly name: string;
  readonly message: string;
}

export class Journal {
  readonly calls: Call[] = [];
  readonly violations: Violation[] = [];
  #waiting: { readonly test: (call: Call) => boolean; readonly found: (call: Call) => void }[] = [];

  begin(name: string, variables: Readonly<Record<string, unknown>>, at: number): Call {
    const call: Call = { name, variables, at, status: 0, code: null, effective: false };
    this.calls.push(call);
    return call;
  }

  object(name: string, message: string): void {
    this.violations.push({ name, message });
  }

  /** The call is over, whatever came of it. */
  finished(call: Call): void {
    const found = this.#waiting.filter(({ test }) => test(call));
    this.#waiting = this.#waiting.filter((one) => !found.includes(one));
    for (const one of found) one.found(call);
  }

  /** The first call, of now or later, that is over and passes the test. */
  waitFor(test: (call: Call) => boolean): Promise<Call> {
    const before = this.calls.find(test);
    if (before !== undefined) return Promise.resolve(before);
    return new Promise((found) => {
      this.#waiting.push({ test, found });
    });
  }
}
