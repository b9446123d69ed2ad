/** Linear's API as the other parts of the agent know it. */
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Entropy } from '../domain/ids.ts';
import { createTokens, type LinearCredentials } from './auth.ts';
import type { AuthHealth } from './auth-health.ts';
import { Budget, type BudgetView } from './budget.ts';
import { type Called, Caller, type CallInput } from './caller.ts';
import {
  CREATE_ACTIVITY,
  ISSUE,
  PROMPTS,
  RECENT_SESSIONS,
  STARTED_STATES,
  UPDATE_ISSUE,
  UPDATE_SESSION,
  VIEWER,
} from './documents.ts';
import { type IssueFacts, type LinearApi, LinearError, type ListedSession } from './port.ts';

/** Where Linear is. */
export const LINEAR_URLS = {
  api: 'https://api.linear.app/graphql',
  token: 'https://api.linear.app/oauth/token',
};
const DEADLINE_MS = 10_000;
/** Sessions of one page; their prompts count towards the complexity of the query. */
const PAGE = 25;

export interface LinearClientParts {
  readonly credentials: LinearCredentials;
  readonly entropy: Entropy;
  readonly log: Logger;
  readonly health: AuthHealth;
  readonly urls?: typeof LINEAR_URLS;
  /** For one request, milliseconds. */
  readonly deadlineMs?: number;
  /** What the app is called, once Linear has said so. */
  readonly onNames?: (names: readonly string[]) => void;
  /** Aborted when the daemon ends: calls under way are given up. */
  readonly signal?: AbortSignal;
}

/** The API, and what only the daemon asks of it. */
export interface LinearClient extends LinearApi {
  budget(): BudgetView;
  /** A person did something about the credentials: the next call tries at once. */
  probeNow(): void;
  /** The app was taken away: its tokens are of no use, and are not kept. */
  dropTokens(): void;
  /** Who the app is, once that was asked; null before. */
  knownViewer(): Viewer | null;
}

const named = z.object({ id: z.string(), name: z.string() });
const identified = z.object({ id: z.string() });
const successSchema = z.object({ success: z.boolean() });
const viewerSchema = z.object({
  id: z.string(),
  name: z.string().nullish(),
  displayName: z.string().nullish(),
  organization: identified,
});
const issueSchema = z.object({
  id: z.string(),
  identifier: z.string(),
  title: z.string(),
  url: z.string(),
  branchName: z.string().nullish(),
  team: z.object({ id: z.string(), key: z.string() }),
  project: named.nullish(),
  labels: z.object({ nodes: z.array(z.object({ name: z.string() })) }),
  state: z.object({ id: z.string(), type: z.string() }),
  delegate: identified.nullish(),
});
const statesSchema = z.object({
  states: z.object({ nodes: z.array(z.object({ id: z.string(), position: z.number() })) }),
});
const promptSchema = z.object({
  id: z.string(),
  signal: z.string().nullish(),
  createdAt: z.string(),
  content: z.object({ body: z.string().default('') }).catch({ body: '' }),
});
const listedSchema = z.object({
  id: z.string(),
  // An open word: Linear has added states without telling.
  status: z.string(),
  createdAt: z.string(),
  creator: identified.nullish(),
  updatedAt: z.string(),
  appUser: identified,
  issue: z
    .object({
      id: z.string(),
      identifier: z.string(),
      title: z.string(),
      url: z.string(),
      description: z.string().nullish(),
      team: z.object({ id: z.string(), key: z.string() }),
    })
    .nullish(),
  comment: z
    .object({ id: z.string(), body: z.string(), user: identified.nullish() })
    .nullish()
    .catch(null),
  activities: z.object({
    nodes: z.array(promptSchema),
    pageInfo: z.object({ hasNextPage: z.boolean() }),
  }),
});
const sessionsSchema = z.object({
  nodes: z.array(listedSchema),
  pageInfo: z.object({ hasNextPage: z.boolean(), endCursor: z.string().nullish() }),
});
const promptsSchema = z.object({ activities: z.object({ nodes: z.array(promptSchema) }) });

type Viewer = { readonly id: string; readonly organizationId: string };

export function createLinearClient(parts: LinearClientParts): LinearClient {
  return new Client(parts);
}

class Client implements LinearClient {
  readonly #caller: Caller;
  readonly #budget: Budget;
  readonly probeNow: () => void;
  readonly dropTokens: () => void;
  readonly #onNames: (names: readonly string[]) => void;
  /** Who the app is does not change. */
  #viewer: Viewer | null = null;

  constructor(parts: LinearClientParts) {
    const { urls = LINEAR_URLS, deadlineMs = DEADLINE_MS } = parts;
    const signal = parts.signal ?? new AbortController().signal;
    const common = { ...parts, deadlineMs, signal };
    const tokens = createTokens({ ...common, url: urls.token });
    this.#budget = new Budget(parts.entropy);
    this.#caller = new Caller({ ...common, url: urls.api, tokens, budget: this.#budget });
    this.#onNames = (names) => parts.onNames?.(names);
    this.probeNow = () => tokens.probeNow();
    this.dropTokens = () => tokens.drop();
  }

  budget(): BudgetView {
    return this.#budget.view();
  }

  knownViewer(): Viewer | null {
    return this.#viewer;
  }

  createActivity: LinearApi['createActivity'] = async (input, priority) => {
    const document = CREATE_ACTIVITY;
    const field = 'agentActivityCreate';
    const called = await this.#caller.call({ field, document, variables: { input }, priority });
    // The id is ours, so whatever has it is this activity: it was delivered before.
    if (called.kind !== 'conflict') expectSuccess(field, called);
  };

  updateSession: LinearApi['updateSession'] = async (id, input, priority) => {
    const variables = { id, input };
    const field = 'agentSessionUpdate';
    const document = UPDATE_SESSION;
    expectSuccess(field, await this.#caller.call({ field, document, variables, priority }));
  };

  updateIssue: LinearApi['updateIssue'] = async (id, input) => {
    const variables = { id, input };
    const field = 'issueUpdate';
    const document = UPDATE_ISSUE;
    expectSuccess(field, await this.#caller.call({ field, document, variables, priority: 1 }));
  };

  issue: LinearApi['issue'] = async (id) => {
    const called = await this.#read('issue', ISSUE, { id });
    return called.kind === 'not_found' ? null : issueOf(read('issue', issueSchema, called));
  };

  startedState: LinearApi['startedState'] = async (id) => {
    const called = await this.#read('team', STARTED_STATES, { id });
    const { nodes } = read('team', statesSchema, called).states;
    return nodes.toSorted((a, b) => a.position - b.position)[0]?.id ?? null;
  };

  viewer: LinearApi['viewer'] = async () => {
    if (this.#viewer) return this.#viewer;
    const found = read('viewer', viewerSchema, await this.#read('viewer', VIEWER, {}));
    this.#viewer = { id: found.id, organizationId: found.organization.id };
    this.#onNames([found.name, found.displayName].filter((name) => name != null));
    return this.#viewer;
  };

  recentSessions: LinearApi['recentSessions'] = async (since, limit) => {
    const { id: ours } = await this.viewer();
    const from = Date.parse(since);
    const listed: ListedSession[] = [];
    for (let after: string | null = null; listed.length < limit; ) {
      const variables: CallInput['variables'] = { first: PAGE, after, since };
      const called = await this.#read('agentSessions', RECENT_SESSIONS, variables);
      const { nodes, pageInfo } = read('agentSessions', sessionsSchema, called);
      const recent = nodes.filter(({ updatedAt }) => Date.parse(updatedAt) > from);
      // For us, and not by us.
      const wanted = recent.filter((one) => one.appUser.id === ours && one.creator?.id !== ours);
      for (const node of wanted) {
        listed.push(await this.#listed(node, since));
      }
      // The newest come first: one that is older ends it.
      if (recent.length < nodes.length || !pageInfo.hasNextPage || !pageInfo.endCursor) break;
      after = pageInfo.endCursor;
    }
    return listed.slice(0, limit);
  };

  async #listed(node: z.infer<typeof listedSchema>, since: string): Promise<ListedSession> {
    let prompts = node.activities.nodes;
    if (node.activities.pageInfo.hasNextPage) {
      const called = await this.#read('agentSession', PROMPTS, { id: node.id, since });
      prompts = read('agentSession', promptsSchema, called).activities.nodes;
    }
    const { id, status, createdAt, updatedAt, issue, comment } = node;
    return {
      id,
      status,
      issue: issue ? { ...issue, description: issue.description ?? null } : null,
      // Linear itself writes one where a session has none: nobody's.
      comment: comment?.user ? { id: comment.id, body: comment.body } : null,
      createdAt,
      updatedAt,
      prompts: prompts
        .toSorted((a, b) => Date.parse(a.createdAt) - Date.parse(b.createdAt))
        .map((one) => ({
          id: one.id,
          body: one.content.body,
          signal: one.signal ?? null,
          createdAt: one.createdAt,
        })),
    };
  }

  #read(field: string, document: string, variables: CallInput['variables']): Promise<Called> {
    return this.#caller.call({ field, document, variables, priority: 1 });
  }
}

/** @throws LinearError `rejected` for what is not there, `transient` for what is not understood. */
function read<Shape extends z.ZodType>(
  field: string,
  schema: Shape,
  called: Called,
): z.output<Shape> {
  if (called.kind === 'not_found') {
    throw new LinearError({ kind: 'rejected', code: 'NOT_FOUND', message: called.message });
  }
  const found = schema.safeParse(called.kind === 'data' ? called.data[field] : null);
  if (found.success) return found.data;
  const where = found.error.issues[0]?.path.join('.') ?? '';
  const message = `${field} was answered in a shape that is not known (${where})`;
  throw new LinearError({ kind: 'transient', message });
}

/** Linear may say `success: false` and nothing else: nothing has happened then. */
function expectSuccess(field: string, called: Called): void {
  if (read(field, successSchema, called).success) return;
  throw new LinearError({ kind: 'transient', message: `${field} was answered success: false` });
}

function issueOf(found: z.infer<typeof issueSchema>): IssueFacts {
  const { id, identifier, title, url, team, state } = found;
  return {
    id,
    identifier,
    title,
    url,
    branchName: found.branchName ?? null,
    team,
    project: found.project ?? null,
    labels: found.labels.nodes.map(({ name }) => name),
    state,
    delegateId: found.delegate?.id ?? null,
  };
}
