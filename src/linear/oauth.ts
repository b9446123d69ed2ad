/** Asks Linear's token endpoint. What it answers is judged here; secrets never leave in words. */
import { z } from 'zod';
import { readWhole } from './graphql.ts';
import { LinearError } from './port.ts';

export interface TokenAnswer {
  readonly accessToken: string;
  readonly refreshToken: string | null;
  /** Seconds. */
  readonly expiresIn: number;
}

/** A refusal that only a person can end; `code` is OAuth's. */
export class GrantRefused extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

const grantedSchema = z.object({
  access_token: z.string().min(1),
  refresh_token: z.string().min(1).optional(),
  expires_in: z.number().positive(),
});
const refusedSchema = z.object({
  error: z.string(),
  error_description: z.string().optional(),
});

export interface TokenRequest {
  readonly url: string;
  readonly form: Readonly<Record<string, string>>;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** Where the endpoint says it is too much and not for how long. */
const UNTOLD_MS = 60_000;

/**
 * @throws GrantRefused where a person has to do something.
 * @throws LinearError `transient` or `rate_limited`.
 */
export async function askForToken(request: TokenRequest): Promise<TokenAnswer> {
  const { url, form, deadlineMs, signal, now } = request;
  const { status, headers, text } = await readWhole(url, deadlineMs, signal, {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams(form).toString(),
  });
  const body = bodyIn(text);
  const granted = grantedSchema.safeParse(body).data;
  if (status === 200 && granted) {
    return {
      accessToken: granted.access_token,
      refreshToken: granted.refresh_token ?? null,
      expiresIn: granted.expires_in,
    };
  }
  if (status === 429 || /RATELIMITED/i.test(text)) {
    const seconds = Number(headers.get('retry-after') ?? 0);
    const wait = seconds > 0 ? seconds * 1_000 : UNTOLD_MS;
    throw new LinearError({ kind: 'rate_limited', retryAt: now + wait });
  }
  const refused = refusedSchema.safeParse(body).data;
  // Without OAuth's own words it is somebody else on the way that answers.
  if (status >= 500 || !refused) {
    const message = `the token endpoint answered HTTP ${status}`;
    throw new LinearError({ kind: 'transient', message });
  }
  const description = withoutSecrets(refused.error_description ?? '', form);
  throw new GrantRefused(withoutSecrets(refused.error, form), description);
}

function bodyIn(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}

const SECRETS = ['client_secret', 'refresh_token', 'code'];

/** An endpoint may repeat what it was sent. */
function withoutSecrets(text: string, form: TokenRequest['form']): string {
  const clean = SECRETS.map((name) => form[name])
    .filter((secret) => secret !== undefined && secret !== '')
    .reduce<string>((rest, secret) => rest.replaceAll(secret ?? '', '[secret]'), text);
  return clean.slice(0, 200);
}
