/** The Linear agent's way in, from configuration. */
import { readFileSync } from 'node:fs';
import type { Config } from '../config.ts';
import { OutliveError } from '../domain/errors.ts';
import { createIngress, type Ingress, type IngressOptions } from '../linear/ingress.ts';

/** Its content without the newline an editor leaves. @throws OutliveError `config_unreadable`. */
export function readSecret(file: string, what: string): string {
  const unusable = (reason: string): OutliveError =>
    new OutliveError(
      'config_unreadable',
      `${file}: the ${what} of the Linear app (linear in config.json) ${reason}.`,
    );
  let secret: string;
  try {
    secret = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw unusable(`cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
  // With an empty one anybody could sign.
  if (secret === '') throw unusable('is empty');
  return secret;
}

/** Null where Linear is not configured. @throws OutliveError `config_unreadable`. */
export const webhookSecret = ({ linear }: Pick<Config, 'linear'>): string | null =>
  linear && readSecret(linear.webhookSecretFile, 'webhook signing secret');

/** Undefined where there is no secret: then nothing can be signed. */
export function linearIngress(
  { linear }: Pick<Config, 'linear'>,
  secret: string | null,
  options: Omit<IngressOptions, 'secret' | 'organizationId'>,
): Ingress | undefined {
  if (secret === null) return undefined;
  return createIngress({ ...options, secret, organizationId: linear?.organizationId ?? null });
}
