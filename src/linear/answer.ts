/**
 * What an answer of Linear's means. The code inside decides, not HTTP's status: a used-up budget
 * comes as 400, 429 or 401, and a failed field as 200.
 */
import { z } from 'zod';

/** One answer of the API, as it was read. */
export interface RawAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

export type Verdict =
  | { readonly kind: 'data'; readonly data: Readonly<Record<string, unknown>> }
  | { readonly kind: 'rate_limited' }
  | { readonly kind: 'unauthenticated'; readonly message: string }
  /** The id that we chose is there already. */
  | { readonly kind: 'conflict' }
  | { readonly kind: 'not_found'; readonly message: string }
  | { readonly kind: 'rejected'; readonly code: string; readonly message: string }
  | { readonly kind: 'transient'; readonly message: string };

const errorSchema = z.object({
  message: z.string().catch(''),
  extensions: z
    .object({
      code: z.string().catch(''),
      type: z.string().catch(''),
      statusCode: z.number().optional().catch(undefined),
      userPresentableMessage: z.string().optional().catch(undefined),
    })
    .catch({ code: '', type: '' }),
});
type ApiError = z.infer<typeof errorSchema>;

const bodySchema = z.object({
  data: z.record(z.string(), z.unknown()).nullish().catch(null),
  errors: z.array(errorSchema).optional().catch(undefined),
});

/** Types that no second try changes. */
const FINAL_TYPES = new Set([
  'invalid input',
  'graphql error',
  'user error',
  'forbidden',
  'feature not accessible',
]);
const FINAL_CODES = /^(?:INPUT_ERROR|INVALID_INPUT|FORBIDDEN|GRAPHQL_\w+|BAD_USER_INPUT)$/;
const LONGEST_MESSAGE = 300;

const bodyIn = (text: string): z.infer<typeof bodySchema> | null => {
  try {
    return bodySchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
};

/** @param field what was asked for: a mutation that says `success: true` there has happened. */
export function judge({ status, text }: RawAnswer, field: string): Verdict {
  const body = bodyIn(text);
  if (body?.data && succeeded(body.data[field])) return { kind: 'data', data: body.data };
  const errors = body?.errors ?? [];
  if (errors.length > 0) return judgeErrors(errors, status);
  if (status === 401) return { kind: 'unauthenticated', message: 'HTTP 401' };
  if (status === 429) return { kind: 'rate_limited' };
  if (status !== 200 || !body?.data) return { kind: 'transient', message: noAnswer(status, body) };
  return { kind: 'data', data: body.data };
}

const noAnswer = (status: number, body: unknown): string =>
  body === null ? `HTTP ${status} without an answer of Linear's` : `HTTP ${status} without data`;

const succeeded = (payload: unknown): boolean =>
  typeof payload === 'object' &&
  payload !== null &&
  (payload as { success?: unknown }).success === true;

function judgeErrors(errors: readonly ApiError[], status: number): Verdict {
  const has = (code: string, type: string): ApiError | undefined =>
    errors.find(({ extensions: is }) => is.code.toUpperCase() === code || is.type === type);
  if (has('RATELIMITED', 'ratelimited')) return { kind: 'rate_limited' };
  const unknown = has('AUTHENTICATION_ERROR', 'authentication error');
  if (unknown) return { kind: 'unauthenticated', message: sayOf(unknown) };
  const [first] = errors as [ApiError];
  const message = sayOf(first);
  const { code, type, statusCode = status } = first.extensions;
  if (code === 'INPUT_ERROR' && /conflict on insert/i.test(first.message)) {
    return { kind: 'conflict' };
  }
  if (/^entity not found/i.test(first.message)) return { kind: 'not_found', message };
  if (FINAL_TYPES.has(type) || FINAL_CODES.test(code)) return { kind: 'rejected', code, message };
  // Neither type nor code is known: what the status says, and where it says nothing, once more.
  const isFinal = type === '' && code === '' && statusCode >= 400 && statusCode < 429;
  return isFinal
    ? { kind: 'rejected', code: `HTTP_${statusCode}`, message }
    : { kind: 'transient', message };
}

function sayOf({ message, extensions }: ApiError): string {
  const more = extensions.userPresentableMessage;
  const all = more === undefined || more === message ? message : `${message}: ${more}`;
  return all.slice(0, LONGEST_MESSAGE);
}
