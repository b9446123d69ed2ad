/** The Idempotency-Key header of commands. */
import type { FastifyRequest } from 'fastify';
import { OutliveError } from '../domain/errors.ts';
import { IDEMPOTENCY_HEADER } from './schemas.ts';

/**
 * The key in the header, undefined when there is none. It is read from the headers as they
 * came: two of them, joined by Node, would look like one.
 * @throws OutliveError `invalid_request`.
 */
export function headerKey(request: FastifyRequest): string | undefined {
  const given = request.raw.headersDistinct[IDEMPOTENCY_HEADER];
  if (given === undefined) return undefined;
  const [value = '', ...more] = given;
  if (value.length > 0 && value.length <= 256 && more.length === 0) return value;
  const message = 'must be given once, 1 to 256 characters';
  throw new OutliveError('invalid_request', `Idempotency-Key ${message}.`, {
    fields: [{ path: '/headers/idempotency-key', message }],
  });
}
