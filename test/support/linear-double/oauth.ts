/** The double's OAuth: tokens of the app, by client credentials or by a code and its refresh. */
import { randomBytes } from 'node:crypto';
import type { DoubleClock } from './clock.ts';

/** How long the refresh token before the last can be used again. */
export const REPLAY_MS = 1_800_000;
const CREDENTIALS_SECONDS = 2_591_999;
const CODE_SECONDS = 86_399;

export interface OAuthAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

interface Refresh {
  /** Set once it was used; the pair that came of it. */
  usedAt: number | null;
  next: Readonly<Record<string, unknown>> | null;
  revoked: boolean;
}

const bad = (error: string, description: string, status = 400): OAuthAnswer => ({
  status,
  body: { error, error_description: description },
});

export class OAuth {
  readonly clientId: string;
  clientSecret: string;
  /** Off: the app was not allowed to mint tokens by itself. */
  allowsClientCredentials = true;
  /** Seconds that new tokens live, in place of Linear's. */
  lifetime: number | null = null;
  /** Tokens that were given out, of any kind. */
  minted = 0;
  readonly #clock: DoubleClock;
  readonly #access = new Map<string, { readonly until: number; readonly scope: string }>();
  readonly #refresh = new Map<string, Refresh>();
  readonly #codes = new Set<string>();

  constructor(clock: DoubleClock, clientId: string, clientSecret: string) {
    this.#clock = clock;
    this.clientId = clientId;
    this.clientSecret = clientSecret;
  }

  /** A code, as a person who installs the app is sent back with. */
  code(): string {
    const code = randomBytes(12).toString('hex');
    this.#codes.add(code);
    return code;
  }

  /** A first pair, as the exchange of a code gives it. */
  pair(): { readonly access_token: string; readonly refresh_token: string } {
    return this.#pair('read write') as { access_token: string; refresh_token: string };
  }

  isGood(token: string): boolean {
    return (this.#access.get(token)?.until ?? 0) > this.#clock.now();
  }

  /** Every access token is bad from now on; refresh tokens stay. */
  expireAccess(): void {
    this.#access.clear();
  }

  /** The app is removed from the workspace: no token is good any more. */
  revokeAll(): void {
    this.#access.clear();
    for (const refresh of this.#refresh.values()) refresh.revoked = true;
  }

  token(form: URLSearchParams): OAuthAnswer {
    if (
      form.get('client_id') !== this.clientId ||
      form.get('client_secret') !== this.clientSecret
    ) {
      return bad('invalid_client', 'The client is not known, or its secret is wrong', 401);
    }
    switch (form.get('grant_type')) {
      case 'client_credentials':
        return this.#byCredentials(form.get('scope'));
      case 'authorization_code':
        return this.#byCode(form.get('code') ?? '', form.get('redirect_uri'));
      case 'refresh_token':
        return this.#byRefresh(form.get('refresh_token') ?? '');
      default:
        return bad('unsupported_grant_type', 'This grant type is not offered');
    }
  }

  revoke(form: URLSearchParams): OAuthAnswer {
    const token = form.get('token') ?? '';
    this.#access.delete(token);
    const refresh = this.#refresh.get(token);
    if (refresh) refresh.revoked = true;
    return { status: 200, body: {} };
  }

  #byCredentials(scope: string | null): OAuthAnswer {
    if (!this.allowsClientCredentials) {
      return bad('Error', 'Client does not support the client_credentials grant type');
    }
    if (!scope) return bad('invalid_scope', 'A scope is needed');
    // Another scope than before takes the tokens of the app away.
    const others = [...this.#access.values()].some((token) => token.scope !== scope);
    if (others) this.#access.clear();
    const seconds = this.lifetime ?? CREDENTIALS_SECONDS;
    return { status: 200, body: this.#mint(scope, seconds) };
  }

  #byCode(code: string, redirect: string | null): OAuthAnswer {
    if (!this.#codes.delete(code)) return bad('invalid_grant', 'The code was used or never given');
    if (!redirect) return bad('invalid_request', 'redirect_uri is needed');
    return { status: 200, body: this.#pair('read write') };
  }

  #byRefresh(token: string): OAuthAnswer {
    const refresh = this.#refresh.get(token);
    const now = this.#clock.now();
    if (refresh === undefined || refresh.revoked) {
      return bad('invalid_grant', 'The refresh token is not known');
    }
    if (refresh.usedAt !== null && now - refresh.usedAt > REPLAY_MS) {
      return bad('invalid_grant', 'The refresh token was used before');
    }
    refresh.usedAt ??= now;
    refresh.next ??= this.#pair('read write');
    return { status: 200, body: refresh.next };
  }

  #pair(scope: string): Readonly<Record<string, unknown>> {
    const refresh = `refresh_${randomBytes(16).toString('hex')}`;
    this.#refresh.set(refresh, { usedAt: null, next: null, revoked: false });
    return { ...this.#mint(scope, this.lifetime ?? CODE_SECONDS), refresh_token: refresh };
  }

  #mint(scope: string, seconds: number): Readonly<Record<string, unknown>> {
    const token = `access_${randomBytes(16).toString('hex')}`;
    this.minted++;
    this.#access.set(token, { until: this.#clock.now() + seconds * 1_000, scope });
    return { access_token: token, token_type: 'Bearer', expires_in: seconds, scope };
  }
}
