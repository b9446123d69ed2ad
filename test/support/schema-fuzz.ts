/** Bad requests made from an operation of the OpenAPI document: one thing wrong in each. */
import type { OpenApi, Operation, Parameter } from '../../src/api/openapi.ts';
import type { Call } from './api-http.ts';

export type Schema = Readonly<Record<string, unknown>>;

/** A good request for an operation, to be spoiled. */
export interface Recipe {
  /** Path with its parameters filled in, no query. */
  readonly path: string;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, string>>;
  /** Status of the request as it is; below 400 unless the state it meets forbids it. */
  readonly status: number;
  /** A path parameter may be any short text, known or not. */
  readonly makesWhatItNames?: boolean;
}

export interface Spoiled {
  readonly what: string;
  readonly call: Call;
  /** What the answer has to be: null for any 4xx. */
  readonly status: number | null;
  /** Where the error has to point, or inside of it. */
  readonly at?: string;
}

const TYPES: Readonly<Record<string, unknown>> = {
  string: 'x',
  integer: 7,
  number: 0.5,
  boolean: true,
  null: null,
  array: ['x'],
  object: { x: 1 },
};

const list = (value: unknown): readonly Schema[] =>
  Array.isArray(value) ? (value as Schema[]) : [];

/** Follows references and takes the variants apart; those whose constants `like` contradicts are left out. */
export function variants(document: OpenApi, schema: Schema, like?: unknown): Schema[] {
  const reference = schema['$ref'];
  if (typeof reference === 'string') {
    const name = reference.split('/').at(-1) ?? '';
    return variants(document, document.components.schemas[name] as Schema, like);
  }
  const inner = [...list(schema['anyOf']), ...list(schema['oneOf'])];
  if (inner.length > 0) return inner.flatMap((one) => variants(document, one, like));
  const properties = (schema['properties'] ?? {}) as Record<string, Schema>;
  const contradicts = Object.entries(properties).some(([name, { const: constant }]) => {
    const given = (like as Record<string, unknown> | undefined)?.[name];
    return constant !== undefined && given !== undefined && given !== constant;
  });
  return contradicts ? [] : [schema];
}

function typeOf(schema: Schema): string {
  if (typeof schema['type'] === 'string') return schema['type'];
  const known = schema['const'] ?? list(schema['enum'])[0];
  return known === null ? 'null' : typeof known;
}

/** Values that no variant of the schema lets through, each with a word for it. */
export function badValues(document: OpenApi, schema: Schema): [string, unknown][] {
  const all = variants(document, schema);
  const types = new Set(all.map(typeOf));
  if (types.has('number')) types.add('integer');
  if (all.some((one) => Object.keys(one).length === 0)) return []; // Takes anything.
  const bad: [string, unknown][] = Object.entries(TYPES)
    .filter(([type]) => !types.has(type) && !(type === 'number' && types.has('integer')))
    .map(([type, value]) => [`of type ${type}`, value]);
  if (types.has('integer') && !types.has('number')) bad.push(['a broken number', 0.5]);
  for (const one of all) bad.push(...outside(one, types));
  if (!types.has('array')) bad.push(['a thousand lists deep', deep(1_000)]);
  return bad;
}

/** Beyond what one variant allows, of its own type. */
function outside(schema: Schema, types: ReadonlySet<string>): [string, unknown][] {
  const { maxLength, minLength, minimum, maximum, maxItems, minItems, pattern } = schema;
  const bad: [string, unknown][] = [];
  const isAlone = types.size === 1 || (types.size === 2 && types.has('null'));
  if (!isAlone) return bad;
  if (schema['enum'] !== undefined || schema['const'] !== undefined) {
    if (typeOf(schema) === 'string') bad.push(['not one of them', 'nonsense']);
  }
  if (typeof maxLength === 'number') bad.push(['too long', 'x'.repeat(maxLength + 1)]);
  if (typeof minLength === 'number' && minLength > 0) bad.push(['empty', '']);
  if (typeof minimum === 'number') bad.push(['too small', minimum - 1]);
  if (typeof maximum === 'number') bad.push(['too large', maximum + 1]);
  if (typeof maxItems === 'number' && maxItems <= 5_000) {
    bad.push(['too many', Array.from({ length: maxItems + 1 }, () => 'x')]);
  }
  if (typeof minItems === 'number' && minItems > 0) bad.push(['none', []]);
  if (typeof pattern === 'string' && !new RegExp(pattern, 'u').test('\0 ?')) {
    bad.push(['of another form', '\0 ?']);
  }
  return bad;
}

function deep(levels: number): unknown {
  let value: unknown = 'x';
  for (let level = 0; level < levels; level++) value = [value];
  return value;
}

const withQuery = (path: string, query: Readonly<Record<string, string>>): string => {
  const text = new URLSearchParams(query).toString();
  return text === '' ? path : `${path}?${text}`;
};

/** Spoils one field after the other, into the objects that are inside. */
function spoiledFields(
  document: OpenApi,
  schema: Schema,
  value: Readonly<Record<string, unknown>>,
  at = '',
): { what: string; at: string; value: Record<string, unknown> }[] {
  const found: { what: string; at: string; value: Record<string, unknown> }[] = [];
  for (const shape of variants(document, schema, value)) {
    const properties = (shape['properties'] ?? {}) as Record<string, Schema>;
    for (const [name, inner] of Object.entries(properties)) {
      const here = `${at}/${name}`;
      for (const [what, bad] of badValues(document, inner)) {
        found.push({ what: `${here} ${what}`, at: here, value: { ...value, [name]: bad } });
      }
      for (const object of variants(document, inner).filter((one) => one['properties'])) {
        const given = (value[name] ?? {}) as Record<string, unknown>;
        for (const spoiled of spoiledFields(document, object, given, here)) {
          found.push({ ...spoiled, value: { ...value, [name]: spoiled.value } });
        }
      }
      for (const { items } of variants(document, inner)) {
        for (const [what, bad] of items ? badValues(document, items as Schema) : []) {
          const spoiled = { ...value, [name]: [bad] };
          found.push({ what: `${here} with one ${what}`, at: `${here}/0`, value: spoiled });
        }
      }
      if ((shape['required'] as string[] | undefined)?.includes(name) && name in value) {
        const { [name]: _left, ...rest } = value;
        // What tells the variants apart is missed at its own name, too.
        found.push({ what: `without ${here}`, at: here, value: rest });
      }
    }
    const unknown = { ...value, 'not~a/field': 1 };
    found.push({
      what: `${at || 'the body'} with an unknown field`,
      at: `${at}/not~0a~1field`,
      value: unknown,
    });
  }
  return found;
}

/** Every way to spoil the body. */
export function spoilBody(
  document: OpenApi,
  method: string,
  operation: Operation,
  recipe: Recipe,
): Spoiled[] {
  const schema = operation.requestBody?.content['application/json']?.schema;
  const path = withQuery(recipe.path, recipe.query ?? {});
  const json = { 'content-type': 'application/json' };
  const raw = (what: string, body: string | Buffer, status: number, headers = json): Spoiled => ({
    what,
    call: { method, path, body, headers },
    status,
  });
  if (!schema) return [];
  const body = recipe.body ?? {};
  const text = JSON.stringify(body);
  const fields = spoiledFields(document, schema, body).map(
    ({ what, at, value }): Spoiled => ({
      what,
      call: { method, path, body: JSON.stringify(value), headers: json },
      status: 422,
      at,
    }),
  );
  return [
    ...fields,
    ...['[]', '"text"', '7', 'true'].map((whole) => raw(`a body that is ${whole}`, whole, 422)),
    raw('cut off', text.slice(0, -1), 400),
    raw('two documents', `${text}${text}`, 400),
    raw('a hundred thousand lists deep', '['.repeat(100_000), 400),
    raw('not text', Buffer.from([0xff, 0xfe, 0x00, 0x7b]), 400),
    raw('of another type', text, 415, { 'content-type': 'text/plain' }),
    raw('a form', 'a=1', 415, { 'content-type': 'application/x-www-form-urlencoded' }),
  ];
}

/** Query values that are wrong for a parameter of this schema. */
function badQueryValues({ schema }: Parameter): string[] {
  const { pattern, maxLength } = schema;
  const bad: string[] = [];
  if (schema['enum'] !== undefined) bad.push('', 'nonsense', 'TRUE');
  if (typeof pattern === 'string') {
    const candidates = ['', 'x', '-1', '1.5', '1e3', '0x1', ' 1', '9'.repeat(40), '\0', 'é'];
    bad.push(...candidates.filter((value) => !new RegExp(pattern, 'u').test(value)));
  }
  if (typeof maxLength === 'number') bad.push('x'.repeat(maxLength + 1));
  return bad;
}

/** Every way to spoil the query; where there is one, a name it does not know is bad, too. */
export function spoilQuery(method: string, operation: Operation, recipe: Recipe): Spoiled[] {
  const parameters = operation.parameters.filter((parameter) => parameter.in === 'query');
  if (parameters.length === 0) return [];
  const rest = recipe.body === undefined ? {} : { body: recipe.body };
  const spoil = (what: string, query: string, at: string): Spoiled => ({
    what,
    call: { method, path: `${recipe.path}?${query}`, ...rest },
    status: 422,
    at,
  });
  return [
    spoil('an unknown parameter', 'nonsense=1', '/nonsense'),
    ...parameters.flatMap((parameter) => {
      const { name } = parameter;
      return [
        spoil(`${name} twice`, `${name}=1&${name}=2`, `/${name}`),
        ...badQueryValues(parameter).map((value) =>
          spoil(
            `${name}=${JSON.stringify(value).slice(0, 40)}`,
            `${name}=${encodeURIComponent(value)}`,
            `/${name}`,
          ),
        ),
      ];
    }),
  ];
}

const NAMES = [
  '%00',
  '%zz',
  '%ED%A0%80',
  'a'.repeat(4_090),
  'a'.repeat(5_000),
  '%2e%2e%2f',
  '%0d%0a',
];
/** Also unusable where any short text is a name. */
const NEVER_NAMES = ['%00', '%zz', '%ED%A0%80', 'a'.repeat(257), 'a'.repeat(5_000)];

/** Every way to spoil what the path names. */
export function spoilPath(method: string, template: string, recipe: Recipe): Spoiled[] {
  if (!template.includes('{')) return [];
  const rest = recipe.body === undefined ? {} : { body: recipe.body };
  return (recipe.makesWhatItNames ? NEVER_NAMES : NAMES).map((name) => ({
    what: `a name like ${name.slice(0, 20)} (${name.length})`,
    call: { method, path: template.replace(/\{\w+\}/, name), ...rest },
    status: null,
  }));
}

/** Every way to spoil the headers that the operation knows. */
export function spoilHeaders(method: string, operation: Operation, recipe: Recipe): Spoiled[] {
  const knows = (name: string): boolean =>
    operation.parameters.some((parameter) => parameter.in === 'header' && parameter.name === name);
  const path = withQuery(recipe.path, recipe.query ?? {});
  const rest = recipe.body === undefined ? {} : { body: recipe.body };
  const keys = knows('Idempotency-Key') ? ['', 'x'.repeat(257), ['one', 'two']] : [];
  const ids = knows('Last-Event-ID') ? ['-1', 'x', '1.5', '9'.repeat(16), '0x1', '1,2'] : [];
  return [
    ...keys.map((key) => ({
      what: `Idempotency-Key ${String(key).slice(0, 20)}`,
      call: { method, path, ...rest, headers: { 'idempotency-key': key } },
      status: 422,
      at: '/headers/idempotency-key',
    })),
    ...ids.map((id) => ({
      what: `Last-Event-ID ${id}`,
      call: { method, path, headers: { accept: 'text/event-stream', 'last-event-id': id } },
      status: 400,
    })),
  ];
}
