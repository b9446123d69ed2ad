/** Variables that a request gives to what it runs. Values may be secrets: no message here holds one. */
import { z } from 'zod';
import { isCarried, NOT_CARRIED } from './text.ts';

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const NAME_MAX = 128;
const VARIABLES_MAX = 64;
const FILES_MAX = 16;
/** Longest value, bytes; the kernel takes four times as much in one string. */
export const VALUE_MAX = 32 * 1024;

/** Why a variable may not have this name; null when it may. */
export function nameProblem(name: string): string | null {
  if (!NAME.test(name) || name.length > NAME_MAX || name === '__proto__') {
    return `is no name of a variable: letters, digits and "_", at most ${NAME_MAX}, no digit first`;
  }
  // What outlive says of a run has to be true in every run.
  if (name.startsWith('OUTLIVE_') && !name.startsWith('OUTLIVE_VAR_')) {
    return "is one of outlive's own; OUTLIVE_VAR_… are yours";
  }
  return null;
}

/** Why a variable may not have this value; null when it may. */
export function valueProblem(value: string): string | null {
  if (!isCarried(value)) return NOT_CARRIED;
  return Buffer.byteLength(value) > VALUE_MAX ? 'is longer than 32 KiB' : null;
}

/** Variables by name. */
export const environmentSchema = z.record(z.string(), z.string()).superRefine((given, context) => {
  const entries = Object.entries(given);
  if (entries.length > VARIABLES_MAX) {
    context.addIssue({ code: 'custom', message: `has more than ${VARIABLES_MAX} variables` });
  }
  for (const [name, value] of entries) {
    const problem = nameProblem(name) ?? valueProblem(value);
    if (problem) context.addIssue({ code: 'custom', path: [name], message: problem });
  }
});

/** Absolute paths; one with a `-` before it need not be there. */
export const environmentFilesSchema = z
  .array(
    z
      .string()
      .max(4096)
      .regex(/^-?\//, 'is not an absolute path, with or without a "-" before it')
      .refine((file) => valueProblem(file) === null, 'holds a NUL or half of a character'),
  )
  .max(FILES_MAX);
