/** The world as GraphQL objects: what each field of the schema is answered from. */
import { checkActivity, checkSessionUpdate, type Fields } from './content.ts';
import { invalid, notFound } from './refusals.ts';
import type { Activity, Issue, Person, Session, State, Team, World } from './world.ts';

interface Page {
  readonly first?: number | null;
  readonly last?: number | null;
  readonly after?: string | null;
  readonly before?: string | null;
  readonly orderBy?: 'createdAt' | 'updatedAt' | null;
}
interface Comparator {
  readonly eq?: string | null;
  readonly neq?: string | null;
  readonly in?: readonly string[] | null;
  readonly nin?: readonly string[] | null;
  readonly gt?: string | null;
  readonly gte?: string | null;
  readonly lt?: string | null;
  readonly lte?: string | null;
}

const DEFAULT_PAGE = 50;
const MOST_OF_A_PAGE = 250;
const CONTENT_TYPES: Readonly<Record<string, string>> = {
  thought: 'AgentActivityThoughtContent',
  action: 'AgentActivityActionContent',
  elicitation: 'AgentActivityElicitationContent',
  response: 'AgentActivityResponseContent',
  error: 'AgentActivityErrorContent',
  prompt: 'AgentActivityPromptContent',
};

const dated = (ms: number | null): string | null =>
  ms === null ? null : new Date(ms).toISOString();

/** A connection over `all`, which is in the order of its cursor. @throws Refusal. */
function connection<Item extends { readonly id: string }, Node>(
  all: readonly Item[],
  page: Page,
  node: (item: Item) => Node,
) {
  const size = page.first ?? page.last ?? DEFAULT_PAGE;
  if (size < 1 || size > MOST_OF_A_PAGE) throw invalid(`a page has 1 to ${MOST_OF_A_PAGE} items`);
  const after = page.after ? all.findIndex(({ id }) => id === page.after) + 1 : 0;
  const before = page.before ? all.findIndex(({ id }) => id === page.before) : all.length;
  const range = all.slice(after, before);
  const isLast = page.last !== null && page.last !== undefined;
  const items = isLast ? range.slice(-size) : range.slice(0, size);
  const start = all.indexOf(items[0] as Item);
  return {
    nodes: items.map(node),
    pageInfo: {
      hasNextPage: items.length > 0 && start + items.length < all.length,
      hasPreviousPage: start > 0,
      startCursor: items[0]?.id ?? null,
      endCursor: items.at(-1)?.id ?? null,
    },
  };
}

function passes(value: string, filter: Comparator | null | undefined): boolean {
  if (!filter) return true;
  const { eq, neq, in: among, nin, gt, gte, lt, lte } = filter;
  return (
    (eq == null || value === eq) &&
    (neq == null || value !== neq) &&
    (among == null || among.includes(value)) &&
    (nin == null || !nin.includes(value)) &&
    (gt == null || value > gt) &&
    (gte == null || value >= gte) &&
    (lt == null || value < lt) &&
    (lte == null || value <= lte)
  );
}

class Views {
  readonly #world: World;
  constructor(world: World) {
    this.#world = world;
  }

  user(id: string | null) {
    const person = this.#world.people.find((one) => one.id === id);
    return person ? this.person(person) : null;
  }

  person(person: Person) {
    const { organization } = this.#world;
    return { ...person, displayName: person.name, organization };
  }

  state(state: State) {
    return state;
  }

  team(team: Team) {
    return {
      id: team.id,
      key: team.key,
      name: team.name,
      states: (page: Page & { filter?: { type?: Comparator } }) => {
        const fit = team.states.filter(({ type }) => passes(type, page.filter?.type));
        return connection(fit, page, this.state);
      },
    };
  }

  issue(issue: Issue) {
    return {
      ...issue,
      url: `https://linear.app/${this.#world.organization.urlKey}/issue/${issue.identifier}`,
      team: () => this.team(issue.team),
      labels: (page: Page) => connection(issue.labels, page, (label) => label),
      state: () => issue.team.states.find(({ id }) => id === issue.stateId),
      delegate: () => this.user(issue.delegateId),
      assignee: () => this.user(issue.assigneeId),
    };
  }

  session(session: Session) {
    const { issue, comment } = session;
    return {
      id: session.id,
      status: this.#world.status(session),
      appUser: () => this.user(session.appUserId),
      creator: () => (session.creator ? this.person(session.creator) : null),
      issue: () => (issue ? this.issue(issue) : null),
      comment: comment && {
        id: comment.id,
        body: comment.body,
        user: () => this.user(comment.by),
      },
      activities: (page: Page & { filter?: { type?: Comparator; createdAt?: Comparator } }) => {
        const fit = this.#world
          .seen(session.id)
          .filter(({ content }) => passes(content.type, page.filter?.type))
          .filter(({ createdAt }) => passes(createdAt, page.filter?.createdAt))
          .toReversed();
        return connection(fit, page, (activity) => this.activity(activity));
      },
      externalLinks: session.links,
      plan: session.plan,
      summary: session.summary,
      url: issue ? `${this.issue(issue).url}#agent-session-${session.id.slice(0, 8)}` : null,
      createdAt: dated(session.createdAt),
      updatedAt: dated(session.updatedAt),
      startedAt: dated(session.startedAt),
      endedAt: dated(session.endedAt),
    };
  }

  activity(activity: Activity) {
    return {
      id: activity.id,
      agentSession: () => this.session(this.#world.session(activity.sessionId)),
      content: { __typename: CONTENT_TYPES[activity.content.type], ...activity.content },
      ephemeral: activity.ephemeral,
      signal: activity.signal,
      signalMetadata: activity.signalMetadata,
      user: () => this.user(activity.userId),
      createdAt: activity.createdAt,
      updatedAt: activity.createdAt,
    };
  }
}

/** What a page of sessions is ordered by: the newest first. */
const newest = (sessions: readonly Session[], by: Page['orderBy']): Session[] =>
  sessions.toSorted((a, b) =>
    by === 'updatedAt' ? b.updatedAt - a.updatedAt : b.createdAt - a.createdAt,
  );

/** The root of queries and mutations. Its functions throw Refusals. */
export function root(world: World) {
  const views = new Views(world);
  let sync = 0;
  const done = (what: object) => ({ success: true, lastSyncId: ++sync, ...what });
  return {
    viewer: () => views.person(world.app),
    issue: ({ id }: { id: string }) => views.issue(world.issue(id)),
    team: ({ id }: { id: string }) => {
      const team = world.teams.find((one) => one.id === id || one.key === id);
      if (team === undefined) throw notFound('Team');
      return views.team(team);
    },
    agentSession: ({ id }: { id: string }) => views.session(world.session(id)),
    agentSessions: (page: Page) =>
      connection(newest(world.sessions, page.orderBy), page, (session) => views.session(session)),
    agentActivityCreate: ({ input }: { input: Fields }) => {
      checkActivity(input);
      return done({ agentActivity: views.activity(world.act(input)) });
    },
    agentSessionUpdate: ({ id, input }: { id: string; input: Fields }) => {
      checkSessionUpdate(input);
      const session = world.session(id);
      world.update(session, input);
      return done({ agentSession: views.session(session) });
    },
    issueUpdate: ({ id, input }: { id: string; input: Fields }) => {
      const issue = world.issue(id);
      changeIssue(world, issue, input);
      return done({ issue: views.issue(issue) });
    },
  };
}

function changeIssue(world: World, issue: Issue, input: Fields): void {
  const { stateId, delegateId, assigneeId } = input;
  if (typeof stateId === 'string') {
    if (!issue.team.states.some(({ id }) => id === stateId)) throw notFound('WorkflowState');
    issue.stateId = stateId;
  }
  for (const id of [delegateId, assigneeId]) {
    if (id != null && !world.people.some((one) => one.id === id)) throw notFound('User');
  }
  if (delegateId !== undefined) issue.delegateId = delegateId as string | null;
  if (assigneeId !== undefined) issue.assigneeId = assigneeId as string | null;
  issue.updatedAt = world.clock.text();
}
