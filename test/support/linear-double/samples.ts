/** Bodies of webhooks, made from the world. Absent fields are sent as null, as Linear mostly does. */
import type { Activity, Issue, Person, Session, World } from './world.ts';

const dated = (ms: number | null): string | null =>
  ms === null ? null : new Date(ms).toISOString();

function personIn(world: World, person: Person | null) {
  if (person === null) return null;
  return {
    id: person.id,
    name: person.name,
    email: `${person.name.toLowerCase()}@lighthouse.invalid`,
    url: `https://linear.app/${world.organization.urlKey}/profiles/${person.name.toLowerCase()}`,
  };
}

function issueIn(world: World, issue: Issue | null) {
  if (issue === null) return null;
  const { id, key, name } = issue.team;
  return {
    id: issue.id,
    identifier: issue.identifier,
    title: issue.title,
    description: issue.description,
    url: `https://linear.app/${world.organization.urlKey}/issue/${issue.identifier}`,
    teamId: id,
    team: { id, key, name },
  };
}

/** The envelope without its time, which the sender stamps. */
export interface Envelope {
  readonly type: string;
  readonly action: string;
  readonly [field: string]: unknown;
}

/** What every body of an app's webhook has around what it tells. */
export class Samples {
  readonly #world: World;
  readonly #clientId: string;
  readonly #webhookId: string;

  constructor(world: World, clientId: string, webhookId: string) {
    this.#world = world;
    this.#clientId = clientId;
    this.#webhookId = webhookId;
  }

  created(session: Session): Envelope {
    return this.envelope('AgentSessionEvent', 'created', {
      agentSession: this.#session(session),
      previousComments: [],
      guidance: [{ body: 'Keep the light on.', origin: { type: 'Organization' } }],
      promptContext: this.#promptContext(session),
    });
  }

  prompted(session: Session, prompt: Activity): Envelope {
    const user = this.#world.people.find(({ id }) => id === prompt.userId) ?? null;
    return this.envelope('AgentSessionEvent', 'prompted', {
      agentSession: this.#session(session),
      agentActivity: {
        id: prompt.id,
        agentSessionId: session.id,
        content: prompt.content,
        userId: prompt.userId,
        user: personIn(this.#world, user),
        sourceCommentId: null,
        createdAt: prompt.createdAt,
        updatedAt: prompt.createdAt,
        archivedAt: null,
        ...(prompt.signal === null ? {} : { signal: prompt.signal, signalMetadata: null }),
      },
      guidance: null,
      previousComments: null,
    });
  }

  unknownAction(session: Session): Envelope {
    const agentSession = this.#session(session);
    return this.envelope('AgentSessionEvent', 'serenaded', { agentSession });
  }

  unknownType(): Envelope {
    return this.envelope('TideEvent', 'rose', { data: { metres: 2 } });
  }

  permissionChange(removed: readonly string[], added: readonly string[]): Envelope {
    return this.envelope('PermissionChange', 'teamAccessChanged', {
      canAccessAllPublicTeams: false,
      addedTeamIds: added,
      removedTeamIds: removed,
    });
  }

  revoked(): Envelope {
    const { appUserId: _none, ...rest } = this.envelope('OAuthApp', 'revoked', {});
    return rest as Envelope;
  }

  envelope(type: string, action: string, rest: object): Envelope {
    return {
      type,
      action,
      createdAt: this.#world.clock.text(),
      organizationId: this.#world.organization.id,
      oauthClientId: this.#clientId,
      appUserId: this.#world.app.id,
      ...rest,
      webhookId: this.#webhookId,
    };
  }

  #session(session: Session) {
    const { comment, creator, issue } = session;
    return {
      id: session.id,
      type: 'commentThread',
      status: session.status,
      appUserId: session.appUserId,
      organizationId: this.#world.organization.id,
      creatorId: creator?.id ?? null,
      creator: personIn(this.#world, creator),
      issueId: issue?.id ?? null,
      issue: issueIn(this.#world, issue),
      commentId: comment?.id ?? null,
      comment: comment && {
        id: comment.id,
        body: comment.body,
        userId: comment.by,
        issueId: issue?.id ?? null,
      },
      sourceCommentId: null,
      sourceMetadata: null,
      summary: session.summary,
      url: issue && `${issueIn(this.#world, issue)?.url}#agent-session-${session.id.slice(0, 8)}`,
      createdAt: dated(session.createdAt),
      updatedAt: dated(session.updatedAt),
      startedAt: dated(session.startedAt),
      endedAt: dated(session.endedAt),
      archivedAt: null,
    };
  }

  #promptContext({ issue, comment }: Session): string {
    if (issue === null) return '<document title="The log of the lighthouse"/>';
    const labels = issue.labels.map(({ name }) => `<label>${name}</label>`).join('\n');
    const said =
      comment?.by == null
        ? ''
        : `\n\n<primary-directive-thread comment-id="${comment.id}"><comment author="${
            this.#world.person.name
          }">${comment.body}</comment></primary-directive-thread>`;
    return `<issue identifier="${issue.identifier}">
<title>${issue.title}</title>
<description>${issue.description ?? ''}</description>
<team name="${issue.team.name}"/>
${labels}</issue>${said}`;
  }
}
