/** Text that goes into an argument, a path or a column as it is. */
import { z } from 'zod';

/** There a NUL ends it and half a character is lost. */
export const isCarried = (value: string): boolean => !value.includes('\0') && value.isWellFormed();

export const NOT_CARRIED = 'holds a NUL or half of a character';

export const carried = (text: z.ZodString) => text.refine(isCarried, NOT_CARRIED);

/** Not empty, at most `max` UTF-16 code units. */
export const carriedText = (max: number) => carried(z.string().min(1).max(max));
