/** Variables that a request gives to what it runs. Values may be secrets: no message here holds one. */
import { z } from 'zod';

/** Variables by name. */
export const environmentSchema = z.record(
  z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'is no name of a variable'),
  z.string().max(32_768),
);

/** Absolute paths; one with a `-` before it need not be there. */
export const environmentFilesSchema = z
  .array(
    z.string().max(4096).regex(/^-?\//, 'is not an absolute path, with or without a "-" before it'),
  )
  .max(16);
