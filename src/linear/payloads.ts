/**
 * What Linear's webhooks say, read as tolerantly as can be: a field that is absent and one
 * that is null are the same, and only what an event is about must be there. Whatever else
 * comes is `unknown`, never an error: it was signed, and is kept.
 */
import { z } from 'zod';

/** Ids are UUIDs; somebody else's word for one is taken too, as long as it is one. */
const id = z.string().min(1).max(256);
/** Absent, null, or of another type than it should be: all of it is null. */
const maybe = <Schema extends z.ZodType>(schema: Schema) =>
  schema
    .nullish()
    .catch(null)
    .transform((value) => value ?? null);
const text = maybe(z.string());

const record = z.record(z.string(), z.unknown());
type Fields = z.output<typeof record>;

const teamSchema = z.object({ id, key: text, name: text });
const issueSchema = z.object({
  id,
  identifier: text,
  title: text,
  url: text,
  teamId: text,
  team: maybe(teamSchema),
  description: text,
});
const commentSchema = z.object({ id, body: text, userId: text });

const sessionSchema = z.object({
  id,
  organizationId: text,
  appUserId: text,
  status: text,
  creatorId: text,
  creator: maybe(z.object({ id, name: text })),
  issueId: text,
  issue: maybe(issueSchema),
  commentId: text,
  comment: maybe(commentSchema),
  sourceCommentId: text,
  url: text,
  createdAt: text,
  updatedAt: text,
});
export type AgentSession = z.output<typeof sessionSchema>;

const activitySchema = z.object({
  id,
  agentSessionId: text,
  content: maybe(z.object({ type: text, body: text })),
  /** Where Linear's documents put the text; on the wire it is in `content`. */
  body: text,
  signal: text,
  userId: text,
  user: maybe(z.object({ id, name: text })),
  sourceCommentId: text,
  createdAt: text,
});

const guidanceSchema = z.object({
  body: z.string(),
  origin: maybe(z.object({ type: text, team: maybe(teamSchema) })),
});

/** Of which app, in which organization. */
interface Origin {
  readonly organizationId: string | null;
  readonly oauthClientId: string | null;
  readonly appUserId: string | null;
  /** ISO 8601, as Linear says it. */
  readonly createdAt: string | null;
}

export interface CreatedEvent extends Origin {
  readonly kind: 'created';
  readonly organizationId: string;
  readonly session: AgentSession;
  /** Linear's own account of issue and thread; text of other people. */
  readonly promptContext: string | null;
  readonly previousComments: readonly z.output<typeof commentSchema>[];
  readonly guidance: readonly z.output<typeof guidanceSchema>[];
}

export interface PromptedEvent extends Origin {
  readonly kind: 'prompted';
  readonly session: AgentSession;
  readonly activity: {
    readonly id: string;
    /** What the person wrote; empty where there is no text at all. */
    readonly body: string;
    /** `stop`, or a word that came later; null for a plain prompt. */
    readonly signal: string | null;
    readonly userId: string | null;
    readonly sourceCommentId: string | null;
    readonly createdAt: string | null;
  };
  readonly guidance: readonly z.output<typeof guidanceSchema>[];
}

export interface PermissionChangeEvent extends Origin {
  readonly kind: 'permission_change';
  readonly canAccessAllPublicTeams: boolean | null;
  readonly addedTeamIds: readonly string[];
  readonly removedTeamIds: readonly string[];
}

export interface RevokedEvent extends Origin {
  readonly kind: 'revoked';
}

export interface UnknownEvent extends Origin {
  readonly kind: 'unknown';
  /** Why it is none of the others. */
  readonly why: string;
}

export type LinearEvent =
  | CreatedEvent
  | PromptedEvent
  | PermissionChangeEvent
  | RevokedEvent
  | UnknownEvent;

/** A body that is JSON, before anybody asks what it means. */
export interface Envelope {
  readonly type: string;
  readonly action: string;
  /** Signed with the body; milliseconds since the epoch, null when it is not there. */
  readonly webhookTimestamp: number | null;
  readonly event: LinearEvent;
  readonly sessionId: string | null;
}

/** Words of other people, as column and in logs; longer is no type of anybody's. */
const WORD_MAX = 128;
const word = (value: unknown): string =>
  typeof value === 'string' ? value.slice(0, WORD_MAX) : '';

const fieldsOf = (value: unknown): Fields | null => {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return null;
  return value as Fields;
};

/** Some receivers see the fields of an event one level deeper, in `payload`. */
function unwrapped(body: Fields): Fields {
  const inner = fieldsOf(body['payload']);
  if (inner === null || body['agentSession'] !== undefined) return body;
  return { ...inner, ...body };
}

const originSchema = z.object({
  organizationId: maybe(id),
  oauthClientId: text,
  appUserId: text,
  createdAt: text,
});

/** What of a list has the shape; the rest is left out. */
function listOf<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema>[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((one) => {
    const parsed = schema.safeParse(one);
    return parsed.success ? [parsed.data] : [];
  });
}

const stringOrNull = (value: unknown): string | null => (typeof value === 'string' ? value : null);

function created(fields: Fields, origin: Origin): LinearEvent {
  const session = sessionSchema.safeParse(fields['agentSession']);
  if (!session.success) return { kind: 'unknown', ...origin, why: 'no agentSession.id' };
  const organizationId = origin.organizationId ?? session.data.organizationId;
  if (organizationId === null) return { kind: 'unknown', ...origin, why: 'no organizationId' };
  return {
    kind: 'created',
    ...origin,
    organizationId,
    session: session.data,
    promptContext: stringOrNull(fields['promptContext']),
    previousComments: listOf(commentSchema, fields['previousComments']),
    guidance: listOf(guidanceSchema, fields['guidance']),
  };
}

function prompted(fields: Fields, origin: Origin): LinearEvent {
  const activity = activitySchema.safeParse(fields['agentActivity']);
  if (!activity.success) return { kind: 'unknown', ...origin, why: 'no agentActivity.id' };
  const { agentSessionId, content, body, signal, userId, user, ...rest } = activity.data;
  const session = sessionSchema.safeParse(
    fieldsOf(fields['agentSession']) ?? { id: agentSessionId },
  );
  if (!session.success) return { kind: 'unknown', ...origin, why: 'no agentSession.id' };
  return {
    kind: 'prompted',
    ...origin,
    organizationId: origin.organizationId ?? session.data.organizationId,
    session: session.data,
    activity: {
      id: rest.id,
      body: content?.body ?? body ?? '',
      signal,
      userId: userId ?? user?.id ?? null,
      sourceCommentId: rest.sourceCommentId,
      createdAt: rest.createdAt,
    },
    guidance: listOf(guidanceSchema, fields['guidance']),
  };
}

function permissionChange(fields: Fields, origin: Origin): LinearEvent {
  const all = fields['canAccessAllPublicTeams'];
  return {
    kind: 'permission_change',
    ...origin,
    canAccessAllPublicTeams: typeof all === 'boolean' ? all : null,
    addedTeamIds: listOf(id, fields['addedTeamIds']),
    removedTeamIds: listOf(id, fields['removedTeamIds']),
  };
}

type Reader = (fields: Fields, origin: Origin) => LinearEvent;
const READERS: ReadonlyMap<string, Reader> = new Map<string, Reader>([
  ['AgentSessionEvent created', created],
  ['AgentSessionEvent prompted', prompted],
  ['PermissionChange teamAccessChanged', permissionChange],
  ['OAuthApp revoked', (_fields, origin) => ({ kind: 'revoked', ...origin })],
]);

const sessionOf = (event: LinearEvent): string | null =>
  'session' in event ? event.session.id : null;

/** Reads a body that is a JSON object. Never throws for what it says. */
export function readEnvelope(body: Fields): Envelope {
  const fields = unwrapped(body);
  const type = word(fields['type']);
  const action = word(fields['action']);
  const at = fields['webhookTimestamp'];
  const origin = originSchema.parse(fields);
  const read = READERS.get(`${type} ${action}`);
  const event = read
    ? read(fields, origin)
    : { kind: 'unknown' as const, ...origin, why: 'a type or action that outlive does not know' };
  return {
    type,
    action,
    webhookTimestamp: typeof at === 'number' && Number.isFinite(at) ? at : null,
    event,
    sessionId: sessionOf(event),
  };
}

/** A raw body as an object; null for what is no JSON, or none of an object. */
export function parseBody(raw: Uint8Array): Fields | null {
  try {
    return fieldsOf(JSON.parse(Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString()));
  } catch {
    return null;
  }
}
