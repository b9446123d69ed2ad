/** The part of config.json that says as whom the agent speaks to Linear. Values are in files. */
import { z } from 'zod';

const fileName = z.string().startsWith('/', 'must be an absolute path').max(4096);

/** Keys below `linear` of config.json. */
export const linearCredentialFields = {
  /** The OAuth app; without one nothing is told to Linear. */
  app: z
    .strictObject({
      clientId: z.string().min(1).max(256),
      /** Holds the app's client secret, and nothing else. */
      clientSecretFile: fileName,
      /** `authorization_code` keeps its rotating tokens in the state directory. */
      grant: z.enum(['client_credentials', 'authorization_code']).default('client_credentials'),
    })
    .optional(),
  /** What people call the agent in Linear; taken out of what it says. */
  names: z.array(z.string().trim().min(1).max(128)).max(16).default(['outlive']),
  /** `provider/model` of turns; the person's default when absent. */
  model: z.string().min(1).max(256).optional(),
  /** Linear's addresses, where they are others: a proxy of one's own. */
  urls: z.strictObject({ api: z.url(), token: z.url() }).optional(),
};
