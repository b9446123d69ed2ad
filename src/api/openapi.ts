/** The API as an OpenAPI 3.1 document, made from the schemas the routes themselves use. */
import { z } from 'zod';
import {
  attemptViewSchema,
  eventViewSchema,
  problemSchema,
  runtimeViewSchema,
  workUnitViewSchema,
} from './schemas.ts';
import { approvalViewSchema } from './schemas-approvals.ts';
import { artifactViewSchema } from './schemas-artifacts.ts';
import { driverDetailSchema, driverViewSchema } from './schemas-drivers.ts';
import { dryRunSchema, explanationSchema, runStartedSchema } from './schemas-explain.ts';
import { backupViewSchema, collectViewSchema } from './schemas-maintenance.ts';
import { daySpendViewSchema, providerViewSchema, spendViewSchema } from './schemas-provider.ts';
import {
  activeViewSchema,
  admissionViewSchema,
  channelViewSchema,
  leaseViewSchema,
  reconcileReportSchema,
  replayWindowSchema,
  semaphoreViewSchema,
  stuckViewSchema,
  supervisorViewSchema,
} from './schemas-runtime.ts';

/** A route as it was registered. */
export interface Route {
  readonly method: string;
  /** With fastify's `:name` parameters. */
  readonly url: string;
  readonly schema: RouteSchema;
}

export interface RouteSchema {
  readonly summary?: string | undefined;
  readonly description?: string | undefined;
  readonly params?: unknown;
  readonly querystring?: unknown;
  readonly body?: unknown;
  readonly response?: unknown;
}

type Json = Readonly<Record<string, unknown>>;

/** By media type. */
export type Content = Readonly<Record<string, { readonly schema: Json }>>;

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required: boolean;
  readonly description?: string;
  readonly schema: Json;
}

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly parameters: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: Content };
  readonly responses: Readonly<Record<string, { description: string; content: Content }>>;
}

export interface OpenApi {
  readonly openapi: '3.1.0';
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Json };
}

/** Shapes with a name of their own in the document. */
const NAMED: Readonly<Record<string, z.ZodType>> = {
  ActiveWork: activeViewSchema,
  Admission: admissionViewSchema,
  Approval: approvalViewSchema,
  Artifact: artifactViewSchema,
  Attempt: attemptViewSchema,
  Backup: backupViewSchema,
  Channel: channelViewSchema,
  Collection: collectViewSchema,
  Driver: driverViewSchema,
  DriverDetail: driverDetailSchema,
  DryRun: dryRunSchema,
  Event: eventViewSchema,
  Explanation: explanationSchema,
  Lease: leaseViewSchema,
  DaySpend: daySpendViewSchema,
  Problem: problemSchema,
  Provider: providerViewSchema,
  ReconcileReport: reconcileReportSchema,
  ReplayWindow: replayWindowSchema,
  RunStarted: runStartedSchema,
  Runtime: runtimeViewSchema,
  Semaphore: semaphoreViewSchema,
  Spend: spendViewSchema,
  StuckWork: stuckViewSchema,
  Supervisor: supervisorViewSchema,
  WorkUnit: workUnitViewSchema,
};

const names = z.registry<{ id: string }>();
for (const [id, schema] of Object.entries(NAMED)) names.add(schema, { id });

const COMPONENT = '#/components/schemas/';

/** Turns schemas into JSON Schema and gathers the named ones it meets. */
class Shapes {
  readonly components: Record<string, unknown> = {};

  constructor() {
    const all = z.toJSONSchema(names, { uri: (id) => `${COMPONENT}${id}`, unrepresentable: 'any' });
    for (const [name, schema] of Object.entries(all.schemas)) {
      const { $schema: _dialect, $id: _id, ...shape } = schema as Record<string, unknown>;
      this.components[name] = shape;
    }
  }

  /** What a client sends (`input`) or gets (`output`). */
  of(schema: unknown, io: 'input' | 'output'): Json {
    if (!(schema instanceof z.ZodType)) return {};
    const name = names.get(schema)?.id;
    if (name !== undefined) return { $ref: `${COMPONENT}${name}` };
    const {
      $schema: _dialect,
      $defs: defs,
      ...shape
    } = z.toJSONSchema(schema, {
      io,
      unrepresentable: 'any',
      metadata: names,
    }) as Record<string, unknown>;
    for (const [name, component] of Object.entries((defs ?? {}) as Json)) {
      this.components[name] ??= point(component);
    }
    return point(shape) as Json;
  }
}

/** References into the document instead of into the schema itself. */
function point(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(point);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) =>
      key === '$ref' && typeof inner === 'string'
        ? [key, inner.replace('#/$defs/', COMPONENT)]
        : [key, point(inner)],
    ),
  );
}

function parameters(shapes: Shapes, place: 'path' | 'query', schema: unknown): Parameter[] {
  const { properties = {}, required = [] } = shapes.of(schema, 'input') as {
    properties?: Record<string, Json>;
    required?: readonly string[];
  };
  return Object.entries(properties).map(([name, shape]) => ({
    name,
    in: place,
    required: place === 'path' || required.includes(name),
    schema: shape,
  }));
}

const IDEMPOTENT = /^POST (?:\/work-units|\/runs|\/work-units\/:id\/(?:cancel|retry))$/;
const STREAM = /^(?:GET .*\/events|GET \/events|POST \/runs)$/;
const TEXT = /^GET .*\/content$/;

const keyParameter: Parameter = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: 'The same key and the same command have one effect, however often they are sent.',
  schema: { type: 'string', minLength: 1, maxLength: 256 },
};

const resumeParameter: Parameter = {
  name: 'Last-Event-ID',
  in: 'header',
  required: false,
  description: 'Where a stream goes on: the id of the last frame that was had.',
  schema: { type: 'string' },
};

function requestBody(shapes: Shapes, body: unknown): Pick<Operation, 'requestBody'> {
  if (!(body instanceof z.ZodType)) return {};
  const schema = shapes.of(body, 'input');
  const required = !body.safeParse(undefined).success;
  return { requestBody: { required, content: { 'application/json': { schema } } } };
}

const TITLES: Readonly<Record<string, string>> = { 200: 'OK', 201: 'Created' };

function responses(shapes: Shapes, name: string, answers: unknown): Operation['responses'] {
  const text = { schema: { type: 'string' } };
  const stream = STREAM.test(name)
    ? { 'text/event-stream': text }
    : TEXT.test(name)
      ? { 'text/plain': text }
      : undefined;
  const known = Object.entries((answers ?? {}) as Record<string, unknown>).map(
    ([status, schema]) => {
      const isJson = schema instanceof z.ZodType;
      const json = isJson ? { 'application/json': { schema: shapes.of(schema, 'output') } } : {};
      const description = TITLES[status] ?? 'Answer';
      return [status, { description, content: { ...json, ...stream } }] as const;
    },
  );
  const own = known.length > 0 ? known : [['200', { description: 'OK', content: stream ?? {} }]];
  const problem = { schema: { $ref: `${COMPONENT}Problem` } };
  return Object.fromEntries([
    ...own,
    [
      'default',
      {
        description: 'Refused, with a stable code',
        content: { 'application/problem+json': problem },
      },
    ],
  ]) as Operation['responses'];
}

function operation(shapes: Shapes, { method, url, schema }: Route): Operation {
  const name = `${method} ${url}`;
  const words = url.split('/').filter((word) => word !== '');
  const named = words.map((word) => word.replace(/^:/, 'by-').replaceAll(/[^a-z0-9-]/gi, '-'));
  return {
    operationId: [method.toLowerCase(), ...named].join('-'),
    summary: schema.summary ?? name,
    ...(schema.description === undefined ? {} : { description: schema.description }),
    tags: [words[0] ?? 'root'],
    parameters: [
      ...parameters(shapes, 'path', schema.params),
      ...parameters(shapes, 'query', schema.querystring),
      ...(IDEMPOTENT.test(name) ? [keyParameter] : []),
      ...(STREAM.test(name) && method === 'GET' ? [resumeParameter] : []),
    ],
    ...requestBody(shapes, schema.body),
    responses: responses(shapes, name, schema.response),
  };
}

/** The document of these routes. */
export function openApi(routes: readonly Route[], version: string): OpenApi {
  const shapes = new Shapes();
  const paths: Record<string, Record<string, Operation>> = {};
  for (const route of routes) {
    const path = route.url.replaceAll(/:(\w+)/g, '{$1}');
    paths[path] = {
      ...paths[path],
      [route.method.toLowerCase()]: operation(shapes, route),
    };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'outlive',
      version,
      description:
        'The API of outlived, on the unix socket of a workspace and, with a bearer token, on 127.0.0.1.',
    },
    paths,
    components: { schemas: shapes.components },
  };
}
