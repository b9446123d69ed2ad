/** The section `linear` of config.json. */
import { z } from 'zod';
import { linearCredentialFields } from './linear-credentials.ts';
import { linearRoutingFields } from './linear-repositories.ts';

const fileName = z.string().startsWith('/', 'must be an absolute path').max(4096);

export const linearFileSchema = z
  .strictObject({
    /** Holds the app's webhook signing secret, and nothing else. */
    webhookSecretFile: fileName.optional(),
    /** In place of it a credential of the daemon's unit (LoadCredential=), by its name. */
    webhookSecretCredential: z
      .string()
      .regex(/^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}$/, 'is not the name of a credential')
      .optional(),
    /** What comes from any other organization is ignored. */
    organizationId: z.string().min(1).max(256).optional(),
    ...linearCredentialFields,
    ...linearRoutingFields,
  })
  .refine(
    ({ webhookSecretFile, webhookSecretCredential }) =>
      (webhookSecretFile === undefined) !== (webhookSecretCredential === undefined),
    'needs webhookSecretFile or webhookSecretCredential, and not both',
  );
type LinearFile = z.output<typeof linearFileSchema>;

export interface LinearConfig
  extends Omit<LinearFile, 'webhookSecretFile' | 'webhookSecretCredential' | 'organizationId'> {
  /** Where the webhook signing secret is read from, by the daemon alone. */
  readonly webhookSecretFile: string;
  readonly organizationId: string | null;
}

/** A credential that was not handed over lies nowhere: whoever reads it is told by that name. */
export function linearConfig(
  file: LinearFile | undefined,
  credentials = '$CREDENTIALS_DIRECTORY',
): LinearConfig | null {
  if (!file) return null;
  const { webhookSecretFile, webhookSecretCredential, organizationId = null, ...rest } = file;
  const credential = `${credentials}/${webhookSecretCredential}`;
  return { ...rest, webhookSecretFile: webhookSecretFile ?? credential, organizationId };
}
