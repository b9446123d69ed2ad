/** Refusals of the daemon, as the errors they were before they went over the wire. */
import type { z } from 'zod';
import { problemSchema } from '../api/schemas.ts';
import { ERRORS, type ErrorCode, OutliveError } from '../domain/errors.ts';

const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERRORS, code);

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // The schema refuses it and says what was expected.
  }
}

/** The error behind a problem document; `internal` for a code this client does not know. */
export function problemToError(status: number, text: string): OutliveError {
  const parsed = problemSchema.safeParse(parseJson(text));
  if (!parsed.success) {
    const start = text.trim().slice(0, 200);
    return new OutliveError(
      'internal',
      `The daemon answered ${status} without saying why: ${start}`,
    );
  }
  const { code, detail, errors, extra } = parsed.data;
  const options = { fields: errors, ...(extra ? { extra } : {}) };
  if (isErrorCode(code)) return new OutliveError(code, detail, options);
  return new OutliveError('internal', `${detail} (${code}, unknown to this client)`, options);
}

/**
 * The last number that retention removed, when that is why a replay was refused: what
 * follows it can be had. Null for any other error.
 */
export function floorOf(error: unknown): number | null {
  if (!(error instanceof OutliveError) || error.code !== 'control_plane_snapshot_required')
    return null;
  const { first, afterSeq } = error.extra;
  const behind = typeof first === 'number' && typeof afterSeq === 'number' && afterSeq < first - 1;
  return behind ? first - 1 : null;
}

/** A body checked against its schema; daemon and client of different versions differ here. */
export function parseBody<Schema extends z.ZodType>(
  schema: Schema,
  text: string,
): z.output<Schema> {
  const parsed = schema.safeParse(parseJson(text));
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const where = issue?.path.join('.') || 'body';
  throw new OutliveError(
    'internal',
    `The daemon's answer is not what this client knows (${where}: ${issue?.message}). Are both of the same version? Restart the daemon after an update.`,
    { cause: parsed.error },
  );
}
