/** Keeps known secret values out of everything the wrapper writes. */

/** Takes a text that holds JSON or plain output and returns it without secrets. */
export type Redact = (text: string) => string;

// A shorter value would also match innocent text.
const MIN_SECRET_LENGTH = 8;

/** Replaces the given values, by variable name, wherever they stand plain or as inside a JSON string. */
export function redactor(secrets: Readonly<Record<string, string>>): Redact {
  const patterns = Object.entries(secrets)
    .filter(([, value]) => value.length >= MIN_SECRET_LENGTH)
    .flatMap(([name, value]) =>
      [value, JSON.stringify(value).slice(1, -1)].map((form) => ({
        form,
        mark: `[redacted ${name}]`,
      })),
    );
  if (patterns.length === 0) return (text) => text;
  return (text) =>
    patterns.reduce((kept, { form, mark }) => kept.replaceAll(form, () => mark), text);
}
