/**
 * What the parts of the Linear agent ask of each other. Types only: the outbox, the turns and
 * the sweep know the API by this, not by HTTP.
 */

/** Content of an activity, by Linear's rules for each type. */
export type ActivityContent =
  | { readonly type: 'thought'; readonly body: string }
  | {
      readonly type: 'action';
      readonly action: string;
      readonly parameter: string;
      readonly result?: string;
    }
  | { readonly type: 'elicitation'; readonly body: string }
  | { readonly type: 'response'; readonly body: string }
  | { readonly type: 'error'; readonly body: string };

/** An activity as it is posted; `id` is ours, so that a second post is the same one. */
export interface ActivityInput {
  readonly id: string;
  readonly agentSessionId: string;
  readonly content: ActivityContent;
  readonly ephemeral?: boolean;
  readonly signal?: 'auth' | 'select';
  readonly signalMetadata?: Readonly<Record<string, unknown>>;
}

export interface SessionUpdate {
  readonly addedExternalUrls?: readonly { readonly label: string; readonly url: string }[];
  readonly plan?: readonly {
    readonly content: string;
    readonly status: 'pending' | 'inProgress' | 'completed' | 'canceled';
  }[];
}

export interface IssueFacts {
  readonly id: string;
  readonly identifier: string;
  readonly title: string;
  readonly url: string;
  readonly branchName: string | null;
  readonly team: { readonly id: string; readonly key: string };
  readonly project: { readonly id: string; readonly name: string } | null;
  readonly labels: readonly string[];
  readonly state: { readonly id: string; readonly type: string };
  readonly delegateId: string | null;
}

/** A session or a prompt as the API lists them, for what webhooks missed. */
export interface ListedSession {
  readonly id: string;
  readonly status: string;
  readonly issueId: string | null;
  /** What it is about, in the words of its webhook. */
  readonly issue?: {
    readonly id: string;
    readonly identifier: string;
    readonly title: string;
    readonly description: string | null;
    readonly url: string;
  } | null;
  /** The comment of a person that it began with: no activity tells of it. */
  readonly comment?: { readonly id: string; readonly body: string } | null;
  readonly createdAt: string;
  readonly updatedAt: string;
  /** Prompts of people, oldest first. */
  readonly prompts: readonly {
    readonly id: string;
    readonly body: string;
    readonly signal: string | null;
    readonly createdAt: string;
  }[];
}

/** How a call failed, whatever HTTP said. */
export type LinearProblem =
  /** The budget is used up; not before `retryAt`. */
  | { readonly kind: 'rate_limited'; readonly retryAt: number }
  /** Nobody can call until a person does something. */
  | { readonly kind: 'auth'; readonly message: string }
  /** It will never be accepted. */
  | { readonly kind: 'rejected'; readonly code: string; readonly message: string }
  /** Network, 5xx, time-out, `success: false`: it may work later. */
  | { readonly kind: 'transient'; readonly message: string };

export class LinearError extends Error {
  readonly problem: LinearProblem;
  constructor(problem: LinearProblem) {
    super(problem.kind === 'rate_limited' ? 'rate limited' : problem.message);
    this.problem = problem;
  }
}

/** Calls at most so urgent as `priority`: 0 waits for nobody, 2 only uses what is left over. */
export type Priority = 0 | 1 | 2;

/** Linear's API. Every method rejects with {@link LinearError} only. */
export interface LinearApi {
  /** Resolves also when this id was posted before. */
  createActivity(input: ActivityInput, priority: Priority): Promise<void>;
  updateSession(sessionId: string, update: SessionUpdate, priority: Priority): Promise<void>;
  issue(issueId: string): Promise<IssueFacts | null>;
  /** The team's first state of type `started`; null when it has none. */
  startedState(teamId: string): Promise<string | null>;
  updateIssue(
    issueId: string,
    input: { readonly stateId?: string; readonly delegateId?: string },
  ): Promise<void>;
  /** Who the app is. */
  viewer(): Promise<{ readonly id: string; readonly organizationId: string }>;
  /** Sessions of this app that changed after `since` (ISO 8601), at most `limit`. */
  recentSessions(since: string, limit: number): Promise<readonly ListedSession[]>;
}
