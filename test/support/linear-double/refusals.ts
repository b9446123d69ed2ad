/** Errors as Linear words them: what a client sees in `errors[]`, and with which HTTP status. */

interface Extensions {
  readonly type: string;
  readonly code: string;
  readonly statusCode: number;
  readonly userError: boolean;
  readonly userPresentableMessage?: string;
}

/** A refusal of Linear's. A fault of the client's that no good client commits is a violation too. */
export class Refusal extends Error {
  readonly extensions: Extensions;
  /** Of the HTTP answer; 200 where only a field failed. */
  readonly status: number;
  readonly violation: boolean;

  constructor(
    message: string,
    extensions: Extensions,
    options: { status: number; violation: boolean },
  ) {
    super(message);
    this.extensions = extensions;
    this.status = options.status;
    this.violation = options.violation;
  }
}

/** What was sent can never be accepted. */
export const invalid = (what: string): Refusal =>
  new Refusal(
    'Argument Validation Error',
    {
      type: 'invalid input',
      code: 'INVALID_INPUT',
      statusCode: 400,
      userError: true,
      userPresentableMessage: what,
    },
    { status: 400, violation: true },
  );

/** The operation does not fit the schema. */
export const notInSchema = (message: string): Refusal =>
  new Refusal(
    message,
    {
      type: 'graphql error',
      code: 'GRAPHQL_VALIDATION_FAILED',
      statusCode: 400,
      userError: true,
      userPresentableMessage: message,
    },
    { status: 400, violation: true },
  );

/** The id was used before; for a client that posts again that is a delivery. */
export const conflict = (entity: string, id: string): Refusal =>
  new Refusal(
    `conflict on insert of ${entity}`,
    {
      type: 'invalid input',
      code: 'INPUT_ERROR',
      statusCode: 400,
      userError: true,
      userPresentableMessage: `Entity ${entity} with id ${id} already exists.`,
    },
    { status: 200, violation: false },
  );

export const notFound = (entity: string): Refusal =>
  new Refusal(
    `Entity not found: ${entity}`,
    {
      type: 'invalid input',
      code: 'INPUT_ERROR',
      statusCode: 400,
      userError: true,
      userPresentableMessage: `Could not find referenced ${entity}.`,
    },
    { status: 200, violation: false },
  );

export const notAuthenticated = (): Refusal =>
  new Refusal(
    'Authentication required, not authenticated',
    {
      type: 'authentication error',
      code: 'AUTHENTICATION_ERROR',
      statusCode: 401,
      userError: true,
      userPresentableMessage: 'You need to authenticate to access this operation.',
    },
    { status: 401, violation: false },
  );

/** `status` is what HTTP says; inside it is always 429. */
export const rateLimited = (status = 400): Refusal =>
  new Refusal(
    'Rate limit exceeded',
    {
      type: 'ratelimited',
      code: 'RATELIMITED',
      statusCode: 429,
      userError: true,
      userPresentableMessage: 'Rate limit exceeded. Please try again later.',
    },
    { status, violation: false },
  );

export const internalError = (status = 500): Refusal =>
  new Refusal(
    'Internal server error',
    { type: 'internal error', code: 'INTERNAL_SERVER_ERROR', statusCode: status, userError: false },
    { status, violation: false },
  );

/** The body of an answer that is only errors. */
export const errorBody = (refusal: Refusal, path?: readonly (string | number)[]) => ({
  errors: [
    {
      message: refusal.message,
      ...(path === undefined ? {} : { path }),
      extensions: refusal.extensions,
    },
  ],
  data: null,
});
