/** The Idempotency-Key header of commands. */
import { OutliveError } from '../domain/errors.ts';

/** The key, undefined when there is none. @throws OutliveError `invalid_request`. */
export function headerKey(value: string | string[] | undefined): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'string' && value.length > 0 && value.length <= 256) return value;
  const message = 'must be given once, 1 to 256 characters';
  throw new OutliveError('invalid_request', `Idempotency-Key ${message}.`, {
    fields: [{ path: '/headers/idempotency-key', message }],
  });
}
