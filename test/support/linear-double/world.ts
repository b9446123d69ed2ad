/** What is in the double's workspace: people, teams, issues, agent sessions and activities. */
import { randomUUID } from 'node:crypto';
import type { DoubleClock } from './clock.ts';
import type { Fields } from './content.ts';
import { conflict, notFound } from './refusals.ts';

export interface Person {
  readonly id: string;
  readonly name: string;
  readonly app: boolean;
}

export interface State {
  readonly id: string;
  readonly name: string;
  readonly type: 'triage' | 'backlog' | 'unstarted' | 'started' | 'completed' | 'canceled';
  readonly position: number;
}

export interface Team {
  readonly id: string;
  readonly key: string;
  readonly name: string;
  readonly states: readonly State[];
}

export interface Issue {
  readonly id: string;
  readonly identifier: string;
  readonly title: string;
  readonly description: string | null;
  readonly team: Team;
  readonly project: { readonly id: string; readonly name: string } | null;
  readonly labels: readonly { readonly id: string; readonly name: string }[];
  readonly branchName: string;
  stateId: string;
  delegateId: string | null;
  assigneeId: string | null;
  readonly createdAt: string;
  updatedAt: string;
}

export interface Activity {
  readonly id: string;
  readonly sessionId: string;
  readonly content: Fields & { readonly type: string };
  readonly ephemeral: boolean;
  readonly signal: string | null;
  readonly signalMetadata: Fields | null;
  readonly userId: string;
  readonly createdAt: string;
  /** Ephemeral, and the agent has said something since: nobody sees it any more. */
  replaced: boolean;
}

export type SessionStatus =
  | 'pending'
  | 'active'
  | 'awaitingInput'
  | 'complete'
  | 'error'
  | 'stale'
  | 'stopping';

export interface Session {
  readonly id: string;
  readonly issue: Issue | null;
  readonly creator: Person | null;
  /** The comment it began with; null where it began without one. */
  readonly comment: {
    readonly id: string;
    readonly body: string;
    readonly by: string | null;
  } | null;
  readonly appUserId: string;
  status: SessionStatus;
  links: { readonly label: string; readonly url: string }[];
  plan: unknown;
  summary: string | null;
  readonly createdAt: number;
  updatedAt: number;
  startedAt: number | null;
  endedAt: number | null;
  /** When the agent was first heard of, by an activity or a link. */
  answeredAt: number | null;
  /** When anybody last said something. */
  lastAt: number;
}

/** The first word of an agent must come within this, else its session shows as unresponsive. */
export const FIRST_WORD_MS = 10_000;
/** Silence after which a session that should be working is stale. */
export const STALE_MS = 1_800_000;

const AFTER: Readonly<Record<string, SessionStatus>> = {
  thought: 'active',
  action: 'active',
  elicitation: 'awaitingInput',
  response: 'complete',
  error: 'error',
};
/** These also appear as a comment in the thread. */
const COMMENTED = ['elicitation', 'response', 'error'];

const states = (): State[] => [
  { id: randomUUID(), name: 'Triage', type: 'triage', position: 0 },
  { id: randomUUID(), name: 'Todo', type: 'unstarted', position: 1 },
  { id: randomUUID(), name: 'In Review', type: 'started', position: 3 },
  { id: randomUUID(), name: 'In Progress', type: 'started', position: 2 },
  { id: randomUUID(), name: 'Done', type: 'completed', position: 4 },
  { id: randomUUID(), name: 'Canceled', type: 'canceled', position: 5 },
];

/** What a test may say of an issue; the rest is made up. */
export interface IssueWish {
  readonly title?: string;
  readonly description?: string | null;
  readonly team?: Team;
  readonly project?: string;
  readonly labels?: readonly string[];
  readonly state?: State['type'];
}

export class World {
  readonly organization = { id: randomUUID(), name: 'Lighthouse', urlKey: 'lighthouse' };
  readonly app: Person = { id: randomUUID(), name: 'keeper', app: true };
  readonly person: Person = { id: randomUUID(), name: 'Ada', app: false };
  readonly people: Person[] = [this.app, this.person];
  readonly team: Team;
  readonly teams: Team[] = [];
  readonly issues: Issue[] = [];
  readonly sessions: Session[] = [];
  readonly activities: Activity[] = [];
  /** Comments that Linear makes by itself of what an agent says. */
  readonly comments: { readonly sessionId: string; readonly body: string }[] = [];
  readonly clock: DoubleClock;
  #issueNumber = 0;

  constructor(clock: DoubleClock) {
    this.clock = clock;
    this.team = this.addTeam('LAMP', 'Lamps');
  }

  addTeam(key: string, name: string): Team {
    const team = { id: randomUUID(), key, name, states: states() };
    this.teams.push(team);
    return team;
  }

  addIssue(wish: IssueWish = {}): Issue {
    const team = wish.team ?? this.team;
    const number = ++this.#issueNumber;
    const identifier = `${team.key}-${number}`;
    const at = this.clock.text();
    const wanted = wish.state ?? 'unstarted';
    const issue: Issue = {
      id: randomUUID(),
      identifier,
      title: wish.title ?? `The lamp number ${number} does not turn`,
      description: wish.description === undefined ? 'It stands still at night.' : wish.description,
      team,
      project: wish.project === undefined ? null : { id: randomUUID(), name: wish.project },
      labels: (wish.labels ?? []).map((name) => ({ id: randomUUID(), name })),
      branchName: `${this.person.name.toLowerCase()}/${identifier.toLowerCase()}-lamp`,
      stateId: team.states.find(({ type }) => type === wanted)?.id ?? '',
      delegateId: null,
      assigneeId: null,
      createdAt: at,
      updatedAt: at,
    };
    this.issues.push(issue);
    return issue;
  }

  /** A session as a person or an automation starts it; no webhook is sent by this. */
  startSession(
    how: 'mention' | 'delegation' | 'automation',
    issue: Issue | null,
    text = `@${this.app.name} please look at this`,
  ): Session {
    const now = this.clock.now();
    const session: Session = {
      id: randomUUID(),
      issue,
      creator: how === 'automation' ? null : this.person,
      comment: this.#firstComment(how, text),
      appUserId: this.app.id,
      status: 'pending',
      links: [],
      plan: null,
      summary: null,
      createdAt: now,
      updatedAt: now,
      startedAt: null,
      endedAt: null,
      answeredAt: null,
      lastAt: now,
    };
    if (how === 'delegation' && issue !== null) {
      issue.delegateId = this.app.id;
      issue.assigneeId ??= this.person.id;
    }
    this.sessions.push(session);
    return session;
  }

  #firstComment(how: 'mention' | 'delegation' | 'automation', text: string): Session['comment'] {
    if (how === 'automation') return null;
    if (how === 'mention') return { id: randomUUID(), body: text, by: this.person.id };
    const body = `This thread is for an agent session with ${this.app.name}.`;
    return { id: randomUUID(), body, by: null };
  }

  /** A person's words in a session; an ended session is open again by them. */
  prompt(session: Session, body: string, signal: string | null = null): Activity {
    const now = this.clock.now();
    if (signal === null) {
      session.status = session.status === 'active' ? 'active' : 'pending';
      session.endedAt = null;
    }
    session.lastAt = now;
    session.updatedAt = now;
    return this.#add(session, {
      id: randomUUID(),
      content: { type: 'prompt', body },
      ephemeral: false,
      signal,
      signalMetadata: null,
      userId: this.person.id,
    });
  }

  /** An activity of the agent, whose shape was checked before. @throws Refusal. */
  act(input: Fields): Activity {
    const id = typeof input['id'] === 'string' ? input['id'] : randomUUID();
    if (this.activities.some((one) => one.id === id)) throw conflict('AgentActivity', id);
    const session = this.session(String(input['agentSessionId']));
    const content = input['content'] as Activity['content'];
    for (const one of this.activities) {
      if (one.sessionId === session.id && one.ephemeral) one.replaced = true;
    }
    const now = this.clock.now();
    session.status = AFTER[content.type] ?? session.status;
    session.answeredAt ??= now;
    session.startedAt ??= now;
    session.endedAt = session.status === 'complete' ? now : null;
    session.lastAt = now;
    session.updatedAt = now;
    if (COMMENTED.includes(content.type)) {
      this.comments.push({ sessionId: session.id, body: String(content['body']) });
    }
    return this.#add(session, {
      id,
      content,
      ephemeral: input['ephemeral'] === true,
      signal: typeof input['signal'] === 'string' ? input['signal'] : null,
      signalMetadata: (input['signalMetadata'] ?? null) as Fields | null,
      userId: this.app.id,
    });
  }

  #add(session: Session, what: Omit<Activity, 'sessionId' | 'createdAt' | 'replaced'>): Activity {
    const activity = {
      ...what,
      sessionId: session.id,
      createdAt: this.clock.text(),
      replaced: false,
    };
    this.activities.push(activity);
    return activity;
  }

  /** News of a session, whose shape was checked before. A summary alone is no sign of life. */
  update(session: Session, input: Fields): void {
    const now = this.clock.now();
    const replacing = input['externalUrls'] as Session['links'] | null | undefined;
    const adding = (input['addedExternalUrls'] ?? []) as Session['links'];
    const removing = (input['removedExternalUrls'] ?? []) as string[];
    if (replacing) session.links = [...replacing];
    else {
      const added = adding.map(({ url }) => url);
      session.links = session.links
        .filter(({ url }) => !removing.includes(url) && !added.includes(url))
        .concat(adding);
    }
    if (replacing || adding.length > 0) session.answeredAt ??= now;
    if (input['plan'] !== undefined) session.plan = input['plan'];
    if (input['summary'] !== undefined) session.summary = input['summary'] as string | null;
    session.updatedAt = now;
  }

  /** @throws Refusal. */
  session(id: string): Session {
    const session = this.sessions.find((one) => one.id === id);
    if (session === undefined) throw notFound('AgentSession');
    return session;
  }

  /** By its UUID or its identifier. @throws Refusal. */
  issue(id: string): Issue {
    const issue = this.issues.find((one) => one.id === id || one.identifier === id);
    if (issue === undefined) throw notFound('Issue');
    return issue;
  }

  /** What Linear would show now: work that is silent for half an hour is stale. */
  status(session: Session): SessionStatus {
    const working = session.status === 'active' || session.status === 'pending';
    return working && this.clock.now() - session.lastAt >= STALE_MS ? 'stale' : session.status;
  }

  /** True when the first word was late, or is. */
  isUnresponsive(session: Session): boolean {
    return (session.answeredAt ?? this.clock.now()) - session.createdAt > FIRST_WORD_MS;
  }

  /** What is seen in a session, oldest first. */
  seen(sessionId: string): Activity[] {
    return this.activities.filter((one) => one.sessionId === sessionId && !one.replaced);
  }
}
