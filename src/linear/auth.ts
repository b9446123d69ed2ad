/**
 * Tokens for Linear's API, by one of two grants. Whoever needs one asks `current`; who was told
 * that it is no good says so with `reject`. One renewal at a time, whoever waits for it.
 *
 * - Client credentials: minted whenever there is no good one. Kept in memory alone.
 * - Authorization code: a refresh gives a new pair and spends the old one, which Linear takes
 *   again for 30 min. So the new pair is on disk before it is used, and that a refresh was begun
 *   is on disk before it is asked for: after a crash or a lost answer in between, the old one is
 *   used again at once and not when the access token happens to run out.
 */
import type { Logger } from 'pino';
import type { Entropy } from '../domain/ids.ts';
import type { AuthHealth } from './auth-health.ts';
import { askForToken, GrantRefused, type TokenAnswer } from './oauth.ts';
import { LinearError } from './port.ts';
import type { TokenPair, TokenStore } from './token-file.ts';

/** Secrets are values here: who calls has read them from the files they are kept in. */
export type LinearCredentials =
  | {
      readonly grant: 'client_credentials';
      readonly clientId: string;
      readonly clientSecret: string;
      /** Always the same: another one takes all tokens of the app away. */
      readonly scope?: string;
    }
  | {
      readonly grant: 'authorization_code';
      readonly clientId: string;
      readonly clientSecret: string;
      readonly tokens: TokenStore;
    };

export const AGENT_SCOPE = 'read,write,app:assignable,app:mentionable';

export interface TokenParts {
  readonly url: string;
  readonly credentials: LinearCredentials;
  readonly entropy: Pick<Entropy, 'now' | 'monotonic'>;
  readonly log: Logger;
  readonly health: AuthHealth;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

export interface Tokens {
  /** One that should be good. @throws LinearError. */
  current(): Promise<string>;
  /** The API did not take it. Nothing when another one is in use by now. */
  reject(token: string, why: string): void;
  /** The API took one. */
  accepted(): void;
  /** A person did something: the next call looks at once. */
  probeNow(): void;
}

/** Renewed when less than this is left, or a tenth of its life; then once in a while. */
const EARLY_MS = 3_600_000;
const EARLY_AGAIN_MS = 60_000;
/** So many tokens in a row that the API does not take: a further one would not be better. */
const REJECTED_MOST = 2;
/** Between tries while only a person can help. */
const PAUSE_MS = 5_000;
const PAUSE_MAX_MS = 60_000;
/** A refresh whose answer is lost is asked for again at once, so often. */
const LOST_TRIES = 3;

interface Held {
  readonly token: string;
  readonly renewAt: number;
  readonly expiresAt: number;
}

export function createTokens(parts: TokenParts): Tokens {
  const { credentials } = parts;
  return new RenewedTokens(
    parts,
    credentials.grant === 'client_credentials'
      ? new Minting(parts, credentials)
      : new Rotation(parts, credentials),
  );
}

/** How one grant comes to a new token. */
interface Source {
  /** The token of an earlier process, when it can still be used. @throws as renew. */
  kept(): Held | null;
  /** @throws GrantRefused, LinearError. */
  renew(): Promise<Held>;
}

class RenewedTokens implements Tokens {
  readonly #parts: TokenParts;
  readonly #source: Source;
  #held: Held | null = null;
  #renewal: Promise<Held> | null = null;
  /** By the monotonic clock. */
  #pausedUntil = Number.NEGATIVE_INFINITY;
  #pauses = 0;
  #refusal: LinearError | null = null;
  #rejected = 0;

  constructor(parts: TokenParts, source: Source) {
    this.#parts = parts;
    this.#source = source;
  }

  async current(): Promise<string> {
    const now = this.#parts.entropy.now();
    this.#held ??= this.#kept();
    const held = this.#held;
    if (held === null || now >= held.expiresAt) return (await this.#renewed()).token;
    if (now >= held.renewAt) this.#renewEarly(held, now);
    return held.token;
  }

  reject(token: string, why: string): void {
    if (this.#held?.token !== token || this.#held.expiresAt === 0) return;
    this.#held = { ...this.#held, expiresAt: 0 };
    this.#rejected++;
    if (this.#rejected < REJECTED_MOST) return;
    this.#refuse('token_refused', `Linear takes none of its tokens: ${why}`);
  }

  accepted(): void {
    this.#rejected = 0;
    // While renewing fails the problem stays, although the old token still works.
    if (this.#refusal) return;
    this.#pauses = 0;
    this.#parts.health.good();
  }

  probeNow(): void {
    this.#pausedUntil = Number.NEGATIVE_INFINITY;
    this.#pauses = 0;
  }

  #kept(): Held | null {
    try {
      const held = this.#source.kept();
      // Somebody has put it there since.
      if (held) this.#refusal = null;
      return held;
    } catch (error) {
      throw this.#failed(error);
    }
  }

  /** Nobody waits for it: the token that there is still works. */
  #renewEarly(held: Held, now: number): void {
    this.#held = { ...held, renewAt: now + EARLY_AGAIN_MS };
    this.#renewed().catch((error: unknown) => {
      this.#parts.log.warn({ err: error }, 'the token is not renewed yet');
    });
  }

  /** Joins the renewal that is under way, or begins one. */
  async #renewed(): Promise<Held> {
    if (this.#renewal) return await this.#renewal;
    if (this.#refusal && this.#parts.entropy.monotonic() < this.#pausedUntil) throw this.#refusal;
    this.#renewal = this.#renew();
    try {
      return await this.#renewal;
    } finally {
      this.#renewal = null;
    }
  }

  async #renew(): Promise<Held> {
    try {
      const held = await this.#source.renew();
      this.#held = held;
      this.#refusal = null;
      this.#parts.log.info({ expiresAt: new Date(held.expiresAt).toISOString() }, 'a new token');
      return held;
    } catch (error) {
      throw this.#failed(error);
    }
  }

  #failed(error: unknown): Error {
    if (error instanceof LinearError) return error;
    if (error instanceof GrantRefused) {
      return this.#refuse(error.code, adviceFor(error, this.#parts.credentials.grant));
    }
    // What is left is our own disk: a code, never the content.
    const { code = 'unknown' } = error as { code?: string };
    return this.#refuse('token_not_kept', `the tokens cannot be kept or read: ${code}`);
  }

  /** Stores the problem and lets nobody try for a while. */
  #refuse(code: string, message: string): LinearError {
    const { entropy, health } = this.#parts;
    health.failed(code, message);
    const pause = Math.min(PAUSE_MAX_MS, PAUSE_MS * 2 ** this.#pauses);
    this.#pauses = Math.min(this.#pauses + 1, 10);
    this.#pausedUntil = entropy.monotonic() + pause;
    this.#refusal = new LinearError({ kind: 'auth', message: `${message} (${code})` });
    return this.#refusal;
  }
}

function adviceFor({ code, message }: GrantRefused, grant: LinearCredentials['grant']): string {
  const said = message === '' ? 'Linear gives no token' : `Linear gives no token: ${message}`;
  if (code === 'invalid_client') return `${said}. Check the client id and secret of the app.`;
  return grant === 'authorization_code'
    ? `${said}. Authorise the app again.`
    : `${said}. Allow client credentials in the settings of the app.`;
}

function heldOf(answer: TokenAnswer, now: number): Held {
  const life = answer.expiresIn * 1_000;
  const expiresAt = now + life;
  const renewAt = expiresAt - Math.min(EARLY_MS, life / 10);
  return { token: answer.accessToken, renewAt, expiresAt };
}

class Minting implements Source {
  readonly #parts: TokenParts;
  readonly #form: Readonly<Record<string, string>>;

  constructor(
    parts: TokenParts,
    given: Extract<LinearCredentials, { grant: 'client_credentials' }>,
  ) {
    this.#parts = parts;
    this.#form = {
      grant_type: 'client_credentials',
      client_id: given.clientId,
      client_secret: given.clientSecret,
      scope: given.scope ?? AGENT_SCOPE,
    };
  }

  kept(): null {
    return null;
  }

  async renew(): Promise<Held> {
    const now = this.#parts.entropy.now();
    return heldOf(await askForToken({ ...this.#parts, form: this.#form, now }), now);
  }
}

class Rotation implements Source {
  readonly #parts: TokenParts;
  readonly #given: Extract<LinearCredentials, { grant: 'authorization_code' }>;
  /** An answer that could not be stored: it must not be used, and must not be lost. */
  #unsaved: { readonly pair: TokenPair; readonly held: Held } | null = null;

  constructor(
    parts: TokenParts,
    given: Extract<LinearCredentials, { grant: 'authorization_code' }>,
  ) {
    this.#parts = parts;
    this.#given = given;
  }

  kept(): Held | null {
    const pair = this.#given.tokens.load();
    if (pair === null || pair.refreshing) return null;
    const { accessToken, expiresAt } = pair;
    if (accessToken === null || expiresAt === null) return null;
    return { token: accessToken, renewAt: expiresAt - EARLY_MS, expiresAt };
  }

  async renew(): Promise<Held> {
    if (this.#unsaved) return this.#save(this.#unsaved.pair, this.#unsaved.held);
    // Read each time: a person may have authorised the app again.
    const pair = this.#given.tokens.load();
    if (pair === null) {
      throw new GrantRefused('not_authorised', 'the app was never authorised');
    }
    if (!pair.refreshing) this.#given.tokens.save({ ...pair, refreshing: true });
    const now = this.#parts.entropy.now();
    const answer = await this.#refresh(pair.refreshToken, now);
    const held = heldOf(answer, now);
    return this.#save(
      {
        refreshToken: answer.refreshToken ?? pair.refreshToken,
        accessToken: answer.accessToken,
        expiresAt: held.expiresAt,
        refreshing: false,
      },
      held,
    );
  }

  #save(pair: TokenPair, held: Held): Held {
    this.#unsaved = { pair, held };
    this.#given.tokens.save(pair);
    this.#unsaved = null;
    return held;
  }

  /** The old token again while answers are lost: only for a time does Linear know it. */
  async #refresh(refreshToken: string, now: number): Promise<TokenAnswer> {
    const { clientId, clientSecret } = this.#given;
    const form = {
      grant_type: 'refresh_token',
      refresh_token: refreshToken,
      client_id: clientId,
      client_secret: clientSecret,
    };
    for (let tried = 1; ; tried++) {
      try {
        return await askForToken({ ...this.#parts, form, now });
      } catch (error) {
        const isLost = error instanceof LinearError && error.problem.kind === 'transient';
        if (!isLost || tried === LOST_TRIES || this.#parts.signal.aborted) throw error;
        this.#parts.log.warn({ tried }, `refreshing the token: ${error.message}`);
      }
    }
  }
}
