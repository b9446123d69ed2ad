/** Tries the app's credentials out, for whoever sets the agent up: nothing is kept. */

import { z } from 'zod';
import { judge } from './answer.ts';
import { AGENT_SCOPE } from './auth.ts';
import { VIEWER } from './documents.ts';
import { postGraphql } from './graphql.ts';
import { askForToken, GrantRefused } from './oauth.ts';
import { LinearError } from './port.ts';
import { sign } from './signature.ts';

const DEADLINE_MS = 10_000;

export interface AppTrial {
  readonly urls: { readonly api: string; readonly token: string };
  readonly clientId: string;
  readonly clientSecret: string;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

const viewerSchema = z.object({ id: z.string(), organization: z.object({ id: z.string() }) });

/** What came of it; a message says what is wrong, and never has a secret in it. */
export type AppTrialResult<Good> = Good | { readonly problem: string };

/**
 * Mints a token with the scopes that an agent needs. Always these: others would take all tokens
 * of the app away, those of the daemon too.
 */
export async function mintToken(trial: AppTrial): Promise<AppTrialResult<{ token: string }>> {
  const { urls, clientId, clientSecret, now } = trial;
  const form = {
    grant_type: 'client_credentials',
    client_id: clientId,
    client_secret: clientSecret,
    scope: AGENT_SCOPE,
  };
  const signal = new AbortController().signal;
  try {
    const request = { url: urls.token, form, deadlineMs: DEADLINE_MS, signal, now };
    return { token: (await askForToken(request)).accessToken };
  } catch (error) {
    return { problem: wordsOf(error) };
  }
}

/** Who the app is in Linear, by a token. */
export async function askViewer(
  url: string,
  token: string,
): Promise<AppTrialResult<{ readonly id: string; readonly organizationId: string }>> {
  const signal = new AbortController().signal;
  try {
    const request = {
      url,
      token,
      document: VIEWER,
      variables: {},
      deadlineMs: DEADLINE_MS,
      signal,
    };
    const verdict = judge(await postGraphql(request), 'viewer');
    const viewer =
      verdict.kind === 'data' ? viewerSchema.safeParse(verdict.data['viewer']).data : undefined;
    if (viewer) return { id: viewer.id, organizationId: viewer.organization.id };
    return { problem: 'message' in verdict ? String(verdict.message) : verdict.kind };
  } catch (error) {
    return { problem: wordsOf(error) };
  }
}

function wordsOf(error: unknown): string {
  if (error instanceof GrantRefused) return `${error.code}: ${error.message}`;
  if (error instanceof LinearError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

/** A webhook of no type that Linear has: checked and stored like any, and then ignored. */
export function trialWebhook(secret: string, now: number): { body: string; signature: string } {
  const event = { type: 'OutliveSetupTest', action: 'test', webhookTimestamp: now };
  const body = JSON.stringify(event);
  return { body, signature: sign(secret, Buffer.from(body)) };
}
