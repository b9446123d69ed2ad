/** What a policy for tools may look like in a request or in config.json. */
import { z } from 'zod';

function compiles(pattern: string): boolean {
  try {
    new RegExp(pattern, 'u');
    return true;
  } catch {
    return false;
  }
}

const effect = z.enum(['allow', 'ask', 'deny']);

/** One rule; everything it names must hold. See {@link ToolRule} of decisions.ts. */
const toolRuleSchema = z.strictObject({
  effect,
  /** Name of the tool, `*` for all. */
  tool: z.string().min(1).max(128),
  argument: z
    .strictObject({
      /** Name of the argument; each text of the arguments when absent. */
      name: z.string().min(1).max(128).optional(),
      pattern: z
        .string()
        .min(1)
        .max(1_000)
        .refine(compiles, 'is not a regular expression (of JavaScript, with the flag u)'),
    })
    .optional(),
  path: z.enum(['inside', 'outside']).optional(),
  reason: z.string().min(1).max(500).optional(),
});

/** Rules in order, the first that holds decides; `otherwise` when none does. */
export const toolPolicySchema = z.strictObject({
  rules: z.array(toolRuleSchema).max(100).default([]),
  otherwise: effect.default('allow'),
});
export type ToolPolicyInput = z.input<typeof toolPolicySchema>;
