/** One GraphQL request, from its text to its answer. */
import {
  type DocumentNode,
  execute,
  type GraphQLError,
  Kind,
  type OperationDefinitionNode,
  parse,
  validate,
} from 'graphql';
import { complexityOf } from './complexity.ts';
import { type Fields, isObject } from './content.ts';
import { errorBody, internalError, invalid, notInSchema, Refusal } from './refusals.ts';
import type { root } from './resolvers.ts';
import { linearSchema } from './schema.ts';

const MOST_COMPLEX = 10_000;

/** A request that fits the schema, and what it costs. */
export interface Operation {
  readonly name: string;
  readonly document: DocumentNode;
  readonly variables: Fields;
  readonly complexity: number;
}

/** The field that a request asks for first, for want of better its text; never throws. */
export function nameOf(body: unknown): string {
  try {
    const query = isObject(body) ? String(body['query']) : '';
    return firstField(operationIn(parse(query))) ?? 'graphql';
  } catch {
    return 'graphql';
  }
}

const operationIn = (document: DocumentNode): OperationDefinitionNode | undefined =>
  document.definitions.find((one) => one.kind === Kind.OPERATION_DEFINITION);

function firstField(operation: OperationDefinitionNode | undefined): string | undefined {
  const first = operation?.selectionSet.selections[0];
  return first?.kind === Kind.FIELD ? first.name.value : undefined;
}

/** @throws Refusal for what does not fit the schema or costs too much. */
export function readOperation(body: unknown): Operation {
  if (!isObject(body) || typeof body['query'] !== 'string') throw invalid('query is missing');
  const document = parsed(body['query']);
  const errors = validate(linearSchema(), document);
  if (errors[0]) throw notInSchema(errors[0].message);
  const operation = operationIn(document);
  if (operation === undefined) throw notInSchema('there is no operation');
  const variables = isObject(body['variables']) ? body['variables'] : {};
  const complexity = complexityOf(document, operation, variables);
  if (complexity > MOST_COMPLEX) throw invalid(`the query is too complex: ${complexity} points`);
  return { name: firstField(operation) ?? 'graphql', document, variables, complexity };
}

function parsed(query: string): DocumentNode {
  try {
    return parse(query);
  } catch (error) {
    throw notInSchema(error instanceof Error ? error.message : String(error));
  }
}

export interface Answer {
  readonly status: number;
  readonly body: unknown;
  /** What made it fail; null when nothing did. */
  readonly refusal: Refusal | null;
}

/** Does what is asked. Never throws. */
export async function run(
  operation: Operation,
  rootValue: ReturnType<typeof root>,
): Promise<Answer> {
  const result = await execute({
    schema: linearSchema(),
    document: operation.document,
    variableValues: operation.variables,
    rootValue,
  });
  const error = result.errors?.[0];
  if (error === undefined) return { status: 200, body: { data: result.data }, refusal: null };
  const refusal = asRefusal(error);
  return { status: refusal.status, body: errorBody(refusal, error.path), refusal };
}

/** What a resolver threw is a refusal; what GraphQL itself says is about the variables. */
function asRefusal(error: GraphQLError): Refusal {
  if (error.originalError instanceof Refusal) return error.originalError;
  return error.path === undefined ? notInSchema(error.message) : internalError();
}
