/** The part of config.json that says which repository an issue of Linear goes to. */
import { z } from 'zod';

const absolutePath = z.string().startsWith('/', 'must be an absolute path').max(4096);
const names = z.array(z.string().trim().min(1).max(256)).max(64).default([]);

const repositorySchema = z.strictObject({
  /** The repository, or any directory in its work tree. */
  path: absolutePath,
  /** Keys or ids. */
  teams: names,
  /** Names or ids. */
  projects: names,
  labels: names,
  /** Takes what no label, project or team decides. */
  default: z.boolean().default(false),
  /** A branch is called this and the identifier, not as Linear proposes. */
  branchPrefix: z
    .string()
    .max(64)
    .regex(/^[A-Za-z0-9][A-Za-z0-9._/-]*$/, 'is not the beginning of a branch name')
    .optional(),
  /** Run once in each new work tree, as a command. */
  setup: z.array(z.string().max(131_072)).min(1).max(256).optional(),
  /** Whether remotes are asked before a work tree is made. */
  fetch: z.boolean().default(true),
});
export type LinearRepository = z.output<typeof repositorySchema>;

/** Keys below `linear` of config.json. */
export const linearRoutingFields = {
  repositories: z
    .array(repositorySchema)
    .max(256)
    .refine((all) => new Set(all.map(({ path }) => path)).size === all.length, {
      message: 'names a path twice',
    })
    .default([]),
  /** Where work is done when there is no repository; the daemon's home directory when absent. */
  cwd: absolutePath.optional(),
};
