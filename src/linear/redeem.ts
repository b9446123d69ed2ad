/** The first pair of tokens, for the code that a person is sent back with who installs the app. */
import { askForToken, type TokenRequest } from './oauth.ts';
import { LinearError } from './port.ts';
import type { TokenStore } from './token-file.ts';

export interface Redemption extends Omit<TokenRequest, 'form'> {
  readonly clientId: string;
  readonly clientSecret: string;
  readonly code: string;
  readonly redirectUri: string;
  readonly tokens: TokenStore;
}

/**
 * Spends the code; returns once the pair is durable. A running daemon finds it at its next try.
 * @throws GrantRefused, LinearError, and the file system's error.
 */
export async function redeemCode(given: Redemption): Promise<void> {
  const { clientId, clientSecret, code, redirectUri, tokens } = given;
  const answer = await askForToken({
    ...given,
    form: {
      grant_type: 'authorization_code',
      client_id: clientId,
      client_secret: clientSecret,
      code,
      redirect_uri: redirectUri,
    },
  });
  if (answer.refreshToken === null) {
    const message = 'Linear gave no refresh token with the code';
    throw new LinearError({ kind: 'rejected', code: 'NO_REFRESH_TOKEN', message });
  }
  tokens.save({
    refreshToken: answer.refreshToken,
    accessToken: answer.accessToken,
    expiresAt: given.now + answer.expiresIn * 1_000,
    refreshing: false,
  });
}
