/** People in Linear, who do what the plan says, and Linear, which tells of it as the plan says. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Delivery } from '../../support/linear-double/webhooks.ts';
import type { Session } from '../../support/linear-double/world.ts';
import type { LinearScene } from '../../support/linear-scene.ts';
import type { Deed, IssuePlan, Sending, SessionPlan } from './plan.ts';
import type { StoreWatch } from './watch.ts';

/** What is as old as its session a sweep takes for its beginning. */
const OPENING_MS = 2_100;
/** Nobody waits longer for an answer before they write again. */
const PATIENCE_MS = 12_000;
/** Nor for the end of an issue, before they turn to the next one. */
const ISSUE_MS = 20_000;
/** Linear waits longer, before it tries again; nothing else is different. */
const RETRY_MS = 400;

/** Something that a person did. */
export interface Done {
  readonly session: Session;
  readonly plan: SessionPlan;
  readonly deed: Deed;
  /** Of the prompt or stop; null for a beginning. */
  readonly activityId: string | null;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

const OVER: ReadonlySet<string> = new Set(['complete', 'error', 'awaitingInput']);

function activityIn({ body }: Delivery): string | null {
  const { agentActivity } = JSON.parse(body.toString()) as { agentActivity?: { id: string } };
  return agentActivity?.id ?? null;
}

export class People {
  readonly done: Done[] = [];
  readonly #scene: LinearScene;
  readonly #watch: StoreWatch;
  readonly #sendings: Promise<void>[] = [];

  constructor(scene: LinearScene, watch: StoreWatch) {
    this.#scene = scene;
    this.#watch = watch;
  }

  /** All issues, so many at once. Resolves when everything was done and every webhook that is sent was taken. */
  async play(issues: readonly IssuePlan[], parallel: number): Promise<void> {
    const left = [...issues];
    const one = async (): Promise<void> => {
      for (let next = left.shift(); next !== undefined; next = left.shift())
        await this.#issue(next);
    };
    await Promise.all(Array.from({ length: parallel }, one));
    await Promise.all(this.#sendings);
  }

  async #issue(plan: IssuePlan): Promise<void> {
    const issue = this.#scene.linear.world.addIssue();
    const sessions = await Promise.all(plan.sessions.map((one) => this.#session(one, issue)));
    await this.#watch.until(() => sessions.every((one) => this.#isOver(one)), ISSUE_MS);
  }

  #isOver(session: Session): boolean {
    return OVER.has(this.#scene.linear.world.status(session));
  }

  async #session(plan: SessionPlan, issue: Session['issue']): Promise<Session> {
    const { world, webhooks, clock } = this.#scene.linear;
    await pause(plan.startMs);
    const [first, ...later] = plan.deeds;
    if (!first) throw new Error('a session without a beginning');
    const session = world.startSession('mention', issue, first.text);
    this.#tell(session, plan, first, webhooks.created(session));
    for (const deed of later) {
      if (deed.wait.kind === 'ms') await pause(deed.wait.ms);
      else await this.#watch.until(() => this.#isOver(session), PATIENCE_MS);
      if (deed.kind === 'prompt') {
        await pause(Math.max(0, session.createdAt + OPENING_MS - clock.now()));
        this.#tell(session, plan, deed, webhooks.prompted(session, deed.text));
      } else this.#tell(session, plan, deed, webhooks.stop(session));
    }
    return session;
  }

  #tell(session: Session, plan: SessionPlan, deed: Deed, delivery: Delivery): void {
    const activityId = activityIn(delivery);
    this.done.push({ session, plan, deed, activityId, at: this.#scene.linear.clock.now() });
    const { never, again } = deed.sending;
    if (never) return;
    this.#sendings.push(this.#send(delivery, deed.sending));
    for (const one of again) this.#sendings.push(this.#sendAgain(delivery, one));
  }

  async #send(delivery: Delivery, { delayMs }: Sending): Promise<void> {
    const { webhooks } = this.#scene.linear;
    await pause(delayMs);
    while (!(await webhooks.send(delivery)).ok) await pause(RETRY_MS);
  }

  async #sendAgain(delivery: Delivery, { afterMs, how }: Sending['again'][number]): Promise<void> {
    const { webhooks } = this.#scene.linear;
    await pause(afterMs);
    await webhooks.send(how === 'identical' ? delivery : webhooks.restamped(delivery));
  }
}
