/** What each webhook does: in the transaction that settles it, orders are carried out after. */
import { type DecisionRequest, decideWithin } from '../supervisor/approval-decide.ts';
import type { Context } from '../supervisor/context.ts';
import type { Transaction } from '../supervisor/writer.ts';
import { parseAnswer } from './answers.ts';
import { createHandlers, type DeliveryHandlers, type Settled } from './deliveries.ts';
import type { PromptedEvent } from './payloads.ts';
import { factsOf, openingPrompt, promptText } from './prompt.ts';
import { prompted, sessionCreated, stopAll, type TurnContext, type TurnOrders } from './turns.ts';

export interface HandlerParts {
  readonly context: Context;
  readonly turns: TurnContext;
  /** Called within the transaction; to be carried out once it is durable. */
  readonly onOrders: (orders: TurnOrders) => void;
  /** The app was taken away: its runs are stopped, its token is of no use. */
  readonly onRevoked: () => void;
}

const OWN: Settled = { state: 'ignored', detail: 'own' };
const processed = (detail: string | null = null): Settled => ({ state: 'processed', detail });

/** Linear's clock and ours may differ by as much. */
const CLOCKS_MS = 5_000;

/** Under this key the answer of an activity is carried out, once. */
const answerKey = (activityId: string): string => `linear-answer:${activityId}`;

/**
 * A prompt that answers the one open question of the session's running turn is an answer, and
 * interrupts nothing. What is unclear is a prompt like any other.
 */
function answer(
  { context }: HandlerParts,
  transaction: Transaction,
  { session, activity }: PromptedEvent,
): boolean {
  const { store } = context;
  const running = store.linear.turnsOfSession(session.id).find(({ state }) => state === 'running');
  if (!running?.workUnitId || activity.signal === 'stop') return false;
  if (store.workUnits.statusOf(running.workUnitId) !== 'waiting_for_approval') return false;
  const pending = store.approvals
    .open(running.workUnitId)
    .filter(({ status, expiresAt }) => status === 'pending' && expiresAt > transaction.at);
  const [only] = pending;
  const said = parseAnswer(activity.body);
  if (!only || pending.length > 1 || said === null) return false;
  // Written before anybody was asked, and come late: it is about something else.
  const saidAt = activity.createdAt === null ? Number.NaN : Date.parse(activity.createdAt);
  if (saidAt < Date.parse(only.requestedAt) - CLOCKS_MS) return false;
  const request: DecisionRequest = { ...said, fail: false, actor: 'user' };
  decideWithin(context, transaction, only.id, request);
  const stored = { command: said.decision, workUnitId: only.id };
  store.diagnostics.recordCommand(answerKey(activity.id), stored, transaction.at);
  return true;
}

/** The handlers of all events that outlive acts on. */
export function createTurnHandlers(parts: HandlerParts): DeliveryHandlers<Transaction> {
  const { context, turns, onOrders, onRevoked } = parts;
  const handlers = createHandlers<Transaction>();
  handlers.on('created', ({ event }, transaction) => {
    const facts = factsOf(event.session, event.organizationId, true);
    onOrders(sessionCreated(turns, transaction, facts, openingPrompt(event)));
    return processed();
  });
  handlers.on('prompted', ({ event }, transaction) => {
    const { session, activity } = event;
    // What we say ourselves is no answer to us.
    if (activity.userId !== null && activity.userId === session.appUserId) return OWN;
    if (context.store.diagnostics.command(answerKey(activity.id))) return processed('answered');
    if (answer(parts, transaction, event)) return processed('answered');
    const organizationId = event.organizationId ?? session.organizationId ?? '';
    const facts = factsOf(session, organizationId, false);
    const isStop = activity.signal === 'stop';
    const { id: activityId, createdAt: saidAt } = activity;
    const prompt = { activityId, body: promptText(event), isStop, saidAt };
    onOrders(prompted(turns, transaction, facts, prompt));
    return processed(isStop ? 'stop' : null);
  });
  handlers.on('permission_change', ({ event }, { at }) => {
    const { canAccessAllPublicTeams, addedTeamIds, removedTeamIds } = event;
    const value = { canAccessAllPublicTeams, addedTeamIds, removedTeamIds, at };
    context.store.linearFacts.put('permissions', value, at);
    return processed();
  });
  handlers.on('revoked', (_delivery, { at }) => {
    context.store.linearFacts.put('revoked', { at }, at);
    onOrders({ interrupt: [], cancel: stopAll(context, at) });
    onRevoked();
    return processed();
  });
  return handlers;
}
