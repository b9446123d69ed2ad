/** Every error of the API leaves as application/problem+json (RFC 9457), from one table. */
import type { Socket } from 'node:net';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import type { ErrorCode, FieldError } from '../domain/errors.ts';
import { OutliveError } from '../domain/errors.ts';
import { BODY_MAX_BYTES, type Problem } from './schemas.ts';

export function problemOf(error: OutliveError): Problem {
  const { code, title, status, message, fields, extra } = error;
  return {
    type: `urn:outlive:error:${code}`,
    title,
    status,
    code,
    detail: message,
    errors: [...fields],
    ...(Object.keys(extra).length > 0 ? { extra } : {}),
  };
}

const FASTIFY_CODES: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  FST_ERR_CTP_INVALID_JSON_BODY: ['malformed_body', 'Send one JSON object.'],
  FST_ERR_CTP_EMPTY_JSON_BODY: ['malformed_body', 'The body is empty; send one JSON object.'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: [
    'malformed_body',
    'The body is not as long as Content-Length says.',
  ],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    'unsupported_media_type',
    'Send Content-Type: application/json.',
  ],
  FST_ERR_CTP_BODY_TOO_LARGE: [
    'body_too_large',
    `Send less than ${BODY_MAX_BYTES / 1024 / 1024} MiB.`,
  ],
};

/** More would only repeat the request. */
const FIELDS_MAX = 100;

export const escapePointer = (key: string): string =>
  key.replaceAll('~', '~0').replaceAll('/', '~1');

/** The fields an issue is about: one, but for unknown keys, which come together. */
function fieldsOf(issue: NonNullable<FastifyError['validation']>[number]): FieldError[] {
  const path = issue.instancePath || '/';
  const { keys } = issue.params;
  if (issue.keyword !== 'unrecognized_keys' || !Array.isArray(keys))
    return [{ path, message: issue.message ?? 'not valid' }];
  const parent = path === '/' ? '' : path;
  return keys.map((key) => ({
    path: `${parent}/${escapePointer(String(key))}`,
    message: 'there is no such field',
  }));
}

/** Puts every failing field in words, with its JSON pointer. */
function invalid(error: FastifyError): OutliveError {
  const fields = (error.validation ?? []).flatMap(fieldsOf).slice(0, FIELDS_MAX);
  const detail = fields.map((field) => `${field.path}: ${field.message}`).join('; ');
  return new OutliveError('invalid_request', detail, { fields });
}

function translate(error: FastifyError | OutliveError): OutliveError | null {
  if (error instanceof OutliveError) return error;
  if (hasZodFastifySchemaValidationErrors(error) || error.validation) return invalid(error);
  const known = FASTIFY_CODES[error.code];
  if (known) return new OutliveError(known[0], known[1]);
  // What else fastify blames on the request (a broken URL, a bad header) is the sender's to mend.
  const blamesRequest = error.statusCode !== undefined && error.statusCode < 500;
  return blamesRequest ? new OutliveError('malformed_body', `${error.message}.`) : null;
}

/** Seconds after which it may be different. */
const RETRY_AFTER: Partial<Record<ErrorCode, number>> = { starting: 1, shutting_down: 5 };

export function sendProblem(reply: FastifyReply, error: OutliveError): FastifyReply {
  const seconds = RETRY_AFTER[error.code];
  if (seconds !== undefined) reply.header('retry-after', String(seconds));
  return reply
    .status(error.status)
    .type('application/problem+json')
    .send(JSON.stringify(problemOf(error)));
}

export const noSuchRoute = (request: FastifyRequest): OutliveError =>
  new OutliveError('not_found', `There is no ${request.method} ${request.url.split('?')[0]}.`);

/** How long a sender that was refused may take to hang up itself, milliseconds. */
const HANG_UP_MS = 1_000;

/** Answers what is not even HTTP, as far as anybody listens, and hangs up. */
export function refuseConnection(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const late = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
  const refusal = new OutliveError(
    'bad_request',
    late ? 'The request did not come to its end in time.' : `It cannot be read: ${error.message}.`,
  );
  const body = JSON.stringify(problemOf(refusal));
  socket.end(
    `HTTP/1.1 ${refusal.status} Bad Request\r\nConnection: close\r\nContent-Type: application/problem+json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  // Closed with something unread the connection would be reset, and the answer lost.
  socket.resume();
  socket.setTimeout(HANG_UP_MS, () => socket.destroy());
}

/** Installs the error and not-found handlers. Unknown errors are logged, and told without their inside. */
export function useProblems(app: FastifyInstance): void {
  app.setErrorHandler((error: FastifyError | OutliveError, request, reply) => {
    const ours = translate(error);
    if (ours) return sendProblem(reply, ours);
    request.log.error({ err: error }, 'a request failed by our mistake');
    return sendProblem(reply, new OutliveError('internal', 'See the log of outlived.'));
  });
  app.setNotFoundHandler((request, reply) => sendProblem(reply, noSuchRoute(request)));
}
