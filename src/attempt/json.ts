/** Careful reading of JSON that somebody else wrote. */

export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value as an object, an empty one when it is something else. */
export const objectOf = (value: unknown): JsonObject => (isObject(value) ? value : {});

/** The value as a string, null when it is something else. */
export const stringOf = (value: unknown): string | null =>
  typeof value === 'string' ? value : null;

/** The value as a finite number, null when it is something else. */
export const numberOf = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** Parsed JSON, undefined when it is none. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
