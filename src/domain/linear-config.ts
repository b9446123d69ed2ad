/** The section `linear` of config.json. */
import { z } from 'zod';
import { type LinearRepository, linearRoutingFields } from './linear-repositories.ts';

const fileName = z.string().startsWith('/', 'must be an absolute path').max(4096);
const credentialName = z
  .string()
  .regex(/^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}$/, 'is not the name of a credential');
const isHttp = (text: string): boolean => /^https?:$/.test(URL.parse(text)?.protocol ?? '');

export const linearFileSchema = z
  .strictObject({
    /** Holds the app's webhook signing secret, and nothing else. */
    webhookSecretFile: fileName.optional(),
    /** In place of it a credential of the daemon's unit (LoadCredential=), by its name. */
    webhookSecretCredential: credentialName.optional(),
    /** What comes from any other organization is ignored. */
    organizationId: z.string().min(1).max(256).optional(),
    /** Of the app; no secret. */
    clientId: z.string().min(1).max(256).optional(),
    /** Holds the app's client secret, and nothing else. */
    clientSecretFile: fileName.optional(),
    /** In place of it a credential, by its name. */
    clientSecretCredential: credentialName.optional(),
    /** Holds the tokens of an app that was authorised by a person; without it they are minted. */
    tokensFile: fileName.optional(),
    /** Where Linear's API is. */
    url: z.string().refine(isHttp, 'is not an http or https URL').default('https://api.linear.app'),
    /** Below it are the work trees of issues. */
    trees: fileName.optional(),
    /** What people call the agent in Linear; taken out of what it says. */
    names: z.array(z.string().trim().min(1).max(128)).max(16).default(['outlive']),
    /** `provider/model` of turns; Pi's own choice when absent. */
    model: z.string().min(1).max(256).optional(),
    ...linearRoutingFields,
  })
  .refine(
    ({ webhookSecretFile, webhookSecretCredential }) =>
      (webhookSecretFile === undefined) !== (webhookSecretCredential === undefined),
    'needs webhookSecretFile or webhookSecretCredential, and not both',
  )
  .refine(
    ({ clientId, clientSecretFile, clientSecretCredential }) =>
      [clientSecretFile, clientSecretCredential].filter((one) => one !== undefined).length ===
      (clientId === undefined ? 0 : 1),
    'needs clientId together with clientSecretFile or clientSecretCredential, and not both',
  );
type LinearFile = z.output<typeof linearFileSchema>;

/** How the app asks for tokens. */
export interface LinearAppConfig {
  readonly clientId: string;
  /** Where the client secret is read from. */
  readonly clientSecretFile: string;
  /** Null: tokens are minted with the client secret alone. */
  readonly tokensFile: string | null;
}

export interface LinearConfig {
  /** Where the webhook signing secret is read from, by the daemon alone. */
  readonly webhookSecretFile: string;
  readonly organizationId: string | null;
  /** Null: webhooks are kept, and nothing is answered. */
  readonly app: LinearAppConfig | null;
  readonly urls: { readonly api: string; readonly token: string };
  /** Holds the work trees of issues; null for the usual place. */
  readonly trees: string | null;
  readonly names: readonly string[];
  readonly model: string | null;
  readonly repositories: readonly LinearRepository[];
  /** Where work is done without a repository; null for the daemon's home directory. */
  readonly cwd: string | null;
}

/** A credential that was not handed over lies nowhere: whoever reads it is told by that name. */
export function linearConfig(
  file: LinearFile | undefined,
  credentials = '$CREDENTIALS_DIRECTORY',
): LinearConfig | null {
  if (!file) return null;
  const { webhookSecretFile, webhookSecretCredential, organizationId = null } = file;
  const { clientId, clientSecretFile, clientSecretCredential, tokensFile = null } = file;
  const fileOf = (own: string | undefined, credential: string | undefined): string =>
    own ?? `${credentials}/${credential}`;
  const secret = fileOf(clientSecretFile, clientSecretCredential);
  const base = file.url.replace(/\/+$/, '');
  return {
    webhookSecretFile: fileOf(webhookSecretFile, webhookSecretCredential),
    organizationId,
    app: clientId === undefined ? null : { clientId, clientSecretFile: secret, tokensFile },
    urls: { api: `${base}/graphql`, token: `${base}/oauth/token` },
    trees: file.trees ?? null,
    names: file.names,
    model: file.model ?? null,
    repositories: file.repositories,
    cwd: file.cwd ?? null,
  };
}
