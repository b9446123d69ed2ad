/** Webhooks as Linear sends them: bodies, and what goes with one over HTTP. All names are invented. */
import type http from 'node:http';
import { sign } from '../../src/linear/signature.ts';

export const SECRET = 'lin_wh_of_the_tests';
const ORGANIZATION = '3b0d6f0e-91c4-4c5a-8f0e-6c1a2b3d4e5f';
const APP_USER = '7f6e5d4c-3b2a-4190-8877-665544332211';
const PERSON = '12ab34cd-56ef-4a7b-8c9d-0e1f2a3b4c5d';
const ISSUE = 'aa11bb22-cc33-4d44-8e55-ff6677889900';
/** Of the subscription: the same on every delivery there is. */
const WEBHOOK_ID = '99887766-5544-4332-9211-00ffeeddccbb';

export type Body = Readonly<Record<string, unknown>>;

const envelope = (type: string, action: string): Body => ({
  type,
  action,
  createdAt: '2027-02-03T10:11:12.345Z',
  organizationId: ORGANIZATION,
  oauthClientId: 'c0ffee00-0000-4000-8000-000000000001',
  appUserId: APP_USER,
  webhookTimestamp: Date.now(),
  webhookId: WEBHOOK_ID,
});

const session = (id: string): Body => ({
  id,
  type: 'commentThread',
  status: 'pending',
  organizationId: ORGANIZATION,
  appUserId: APP_USER,
  creatorId: PERSON,
  creator: { id: PERSON, name: 'Ada', email: 'ada@example.test', url: 'https://example.test/ada' },
  issueId: ISSUE,
  issue: {
    id: ISSUE,
    identifier: 'LAB-7',
    title: 'The kettle whistles in the wrong key',
    url: 'https://linear.app/lab/issue/LAB-7',
    teamId: 'team-1',
    team: { id: 'team-1', key: 'LAB', name: 'Laboratory' },
    description: null,
  },
  commentId: 'comment-1',
  comment: { id: 'comment-1', body: 'Please have a look', userId: PERSON },
  sourceCommentId: null,
  url: null,
  createdAt: '2027-02-03T10:11:12.000Z',
  updatedAt: '2027-02-03T10:11:12.000Z',
});

/** A session that begins. */
export const createdBody = (sessionId: string, more: Body = {}): Body => ({
  ...envelope('AgentSessionEvent', 'created'),
  agentSession: session(sessionId),
  promptContext: '<issue identifier="LAB-7"><title>The kettle whistles</title></issue>',
  guidance: [{ body: 'Be brief', origin: { type: 'Organization' } }],
  previousComments: null,
  ...more,
});

/** What a person wrote in it. */
export const promptedBody = (sessionId: string, activityId: string, more: Body = {}): Body => ({
  ...envelope('AgentSessionEvent', 'prompted'),
  agentSession: session(sessionId),
  agentActivity: {
    id: activityId,
    agentSessionId: sessionId,
    content: { type: 'prompt', body: 'And the teapot too' },
    userId: PERSON,
    user: { id: PERSON, name: 'Ada' },
    signal: null,
    createdAt: '2027-02-03T10:12:00.000Z',
  },
  ...more,
});

/** Any other event. */
export const otherBody = (type: string, action: string, more: Body = {}): Body => ({
  ...envelope(type, action),
  ...more,
});

/** The headers of a delivery; `deliveryId` null sends none. */
export const headersOf = (
  raw: string | Buffer,
  { secret = SECRET, deliveryId = '0d0c0b0a-0908-4706-8504-030201000fff' as string | null } = {},
): http.OutgoingHttpHeaders => ({
  'content-type': 'application/json; charset=utf-8',
  'user-agent': 'Linear-Webhook',
  'linear-signature': sign(secret, Buffer.from(raw)),
  ...(deliveryId === null ? {} : { 'linear-delivery': deliveryId }),
});

/** A signed delivery for `send`, of bytes or of what becomes them. */
export function delivery(
  body: Body | string | Buffer,
  options: { secret?: string; deliveryId?: string | null; headers?: http.OutgoingHttpHeaders } = {},
) {
  const raw = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const { headers, ...rest } = options;
  return {
    method: 'POST',
    path: '/linear/webhook',
    body: raw,
    headers: { ...headersOf(raw, rest), ...headers },
  };
}
