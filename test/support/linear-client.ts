/** The real client of Linear against the double, over a real store, on the double's clock. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Writable } from 'node:stream';
import pino from 'pino';
import type { Entropy } from '../../src/domain/ids.ts';
import type { LinearCredentials } from '../../src/linear/auth.ts';
import { AuthHealth } from '../../src/linear/auth-health.ts';
import {
  createLinearClient,
  type LinearClient,
  type LinearClientParts,
} from '../../src/linear/client.ts';
import { LinearError, type LinearProblem } from '../../src/linear/port.ts';
import { type TokenStore, tokenFile } from '../../src/linear/token-file.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { type LinearDouble, startLinearDouble } from './linear-double/server.ts';

export class LinearRig {
  readonly linear: LinearDouble;
  readonly directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-linear-'));
  readonly tokenPath = path.join(this.directory, 'tokens.json');
  readonly entropy: Entropy;
  /** Whatever must not be seen anywhere. */
  readonly secrets: string[];
  readonly #logged: string[] = [];
  readonly #ends: (() => void)[] = [];
  #store: Store;

  private constructor(linear: LinearDouble) {
    this.linear = linear;
    this.secrets = [linear.oauth.clientSecret];
    this.entropy = {
      now: () => linear.clock.now(),
      monotonic: () => linear.clock.now(),
      uptimeSeconds: () => os.uptime(),
      random: (size) => randomBytes(size),
    };
    this.#store = this.#open();
  }

  static async start(): Promise<LinearRig> {
    return new LinearRig(await startLinearDouble());
  }

  get store(): Store {
    return this.#store;
  }

  /** A client by client credentials. */
  minting(more: Partial<LinearClientParts> = {}): LinearClient {
    return this.client({ ...this.#app(), grant: 'client_credentials' }, more);
  }

  /** A client by a pair of tokens; `tokens` stands between it and its file. */
  rotating(
    tokens: TokenStore = this.tokens(),
    more: Partial<LinearClientParts> = {},
  ): LinearClient {
    return this.client({ ...this.#app(), grant: 'authorization_code', tokens }, more);
  }

  client(credentials: LinearCredentials, more: Partial<LinearClientParts>): LinearClient {
    const ends = new AbortController();
    this.#ends.push(() => ends.abort());
    const { url } = this.linear;
    return createLinearClient({
      credentials,
      entropy: this.entropy,
      log: this.log(),
      health: this.health(),
      urls: { api: `${url}/graphql`, token: `${url}/oauth/token` },
      signal: ends.signal,
      ...more,
    });
  }

  /** What the next daemon would find of it; also the one that clients here are given. */
  health(): AuthHealth {
    return new AuthHealth({ store: this.#store, entropy: this.entropy, log: this.log() });
  }

  log(): pino.Logger {
    const stream = new Writable({
      write: (chunk, _encoding, done) => {
        this.#logged.push(String(chunk));
        done();
      },
    });
    return pino({ level: 'trace' }, stream);
  }

  tokens(): TokenStore {
    return tokenFile(this.tokenPath);
  }

  /** As after an authorisation: a pair of the double's, on disk. */
  authorise(): void {
    const { access_token, refresh_token } = this.linear.oauth.pair();
    this.tokens().save({
      refreshToken: refresh_token,
      accessToken: access_token,
      expiresAt: this.entropy.now() + 86_399_000,
      refreshing: false,
    });
  }

  /** What was logged as an error. */
  errors(): string[] {
    return this.#logged.filter((line) => (JSON.parse(line) as { level: number }).level >= 50);
  }

  /** @throws when the client sent what no good one sends. */
  expectNoViolations(): void {
    const violations = this.linear.violations();
    if (violations.length > 0) throw new Error(`violations: ${JSON.stringify(violations)}`);
  }

  /** @throws when a token or a secret is in the log or in the store. */
  expectNoSecrets(): void {
    const seen = this.#logged.join('') + JSON.stringify(this.#store.linearFacts.list());
    const found = /access_[0-9a-f]{32}|refresh_[0-9a-f]{32}/.exec(seen)?.[0];
    const told = this.secrets.find((secret) => seen.includes(secret)) ?? found;
    if (told !== undefined) throw new Error(`a secret was told: ${told}`);
  }

  /** The store, closed and opened again: a daemon that starts. */
  restart(): void {
    this.#store.close();
    this.#store = this.#open();
  }

  /** Undoes all; whatever the test was about, it must not have told a secret. */
  async end(): Promise<void> {
    try {
      this.expectNoSecrets();
    } finally {
      for (const end of this.#ends) end();
      await this.linear.close();
      this.#store.close();
      rmSync(this.directory, { recursive: true, force: true });
    }
  }

  #app() {
    const { clientId, clientSecret } = this.linear.oauth;
    return { clientId, clientSecret };
  }

  #open(): Store {
    return openStore(this.directory, 'main', '2026-01-02T03:04:05.678Z');
  }
}

/** How a call failed; that it did not is a failure of the test. */
export async function problemOf(call: Promise<unknown>): Promise<LinearProblem> {
  const outcome = await call.then(
    () => 'it did not fail',
    (error: unknown) => error,
  );
  if (outcome instanceof LinearError) return outcome.problem;
  throw new Error(`not a LinearError: ${String(outcome)}`);
}
