/** Every error of the API leaves as application/problem+json (RFC 9457), from one table. */
import type { FastifyError, FastifyInstance, FastifyReply } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import type { ErrorCode, FieldError } from '../domain/errors.ts';
import { OutliveError } from '../domain/errors.ts';
import type { Problem } from './schemas.ts';

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
  FST_ERR_CTP_BODY_TOO_LARGE: ['body_too_large', 'Send less than 12 MiB.'],
};

/** Puts every failing field in words, with its JSON pointer. */
function invalid(error: FastifyError): OutliveError {
  const fields: FieldError[] = (error.validation ?? []).map((issue) => ({
    path: issue.instancePath || '/',
    message: issue.message ?? 'not valid',
  }));
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
  return blamesRequest ? new OutliveError('malformed_body', error.message) : null;
}

export function sendProblem(reply: FastifyReply, error: OutliveError): FastifyReply {
  return reply
    .status(error.status)
    .type('application/problem+json')
    .send(JSON.stringify(problemOf(error)));
}

/** Installs the error and not-found handlers. Unknown errors are logged, and told without their inside. */
export function useProblems(app: FastifyInstance): void {
  app.setErrorHandler((error: FastifyError | OutliveError, request, reply) => {
    const ours = translate(error);
    if (ours) return sendProblem(reply, ours);
    request.log.error({ err: error }, 'a request failed by our mistake');
    return sendProblem(reply, new OutliveError('internal', 'See the log of outlived.'));
  });
  app.setNotFoundHandler((request, reply) =>
    sendProblem(
      reply,
      new OutliveError('not_found', `There is no ${request.method} ${request.url.split('?')[0]}.`),
    ),
  );
}
