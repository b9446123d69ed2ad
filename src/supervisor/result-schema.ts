/** JSON Schema of results: refused where it is none, and what it says of a value. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { OutliveError } from '../domain/errors.ts';
import type { StartWorkUnit } from '../domain/request.ts';

/** A JSON Schema. */
export type Schema = Readonly<Record<string, unknown>>;

const FIELD = '/outcome/result/schema';
const ERRORS_NAMED = 5;

/**
 * One for each schema: a schema with an `$id` may be given again. Unknown keywords and
 * formats are notes to people, as the draft has them.
 */
function compile(schema: Schema): ValidateFunction {
  const ajv = new Ajv2020({
    strict: false,
    validateFormats: false,
    logger: false,
    messages: true,
  });
  // An answer that comes later is no answer here.
  const { $async: _later, ...plain } = schema;
  return ajv.compile(plain);
}

/** @throws OutliveError `invalid_request`, naming the field, for what is no schema of draft 2020-12. */
export function requireResultSchema({ outcome }: Pick<StartWorkUnit, 'outcome'>): void {
  if (!outcome?.result) return;
  try {
    compile(outcome.result.schema);
  } catch (error) {
    const reason = (error as Error).message;
    throw new OutliveError(
      'invalid_request',
      `outcome.result.schema is no JSON Schema of draft 2020-12: ${reason}.`,
      { fields: [{ path: FIELD, message: reason }] },
    );
  }
}

/** What is wrong with a value, as a sentence; null when the schema accepts it. */
export function objectionTo(schema: Schema, value: unknown): string | null {
  let errors: ValidateFunction['errors'];
  try {
    const validate = compile(schema);
    if (validate(value)) return null;
    errors = validate.errors;
  } catch (error) {
    // One that goes round in circles; it would tomorrow too.
    return `the result cannot be held against its schema: ${(error as Error).message}`;
  }
  const named = (errors ?? [])
    .slice(0, ERRORS_NAMED)
    .map(({ instancePath, message }) => `${instancePath || 'it'} ${message ?? 'is not valid'}`);
  return `the result is not as its schema says: ${named.join(', ')}`;
}
