/**
 * `POST /linear/webhook`: stored, then answered. Linear counts as delivered what is answered
 * with 200 within five seconds, so that nothing else may happen before.
 */
import type { FastifyError, FastifyInstance, FastifyPluginCallback } from 'fastify';
import { OutliveError } from '../domain/errors.ts';
import { sendProblem } from './problem.ts';

export const WEBHOOK_PATH = '/linear/webhook';
/** Far above anything Linear sends; larger is answered 413 before it is read. */
const BODY_MAX_BYTES = 1024 * 1024;
/** When the ledger could not be written: long enough for a restart, soon enough for a person. */
const RETRY_AFTER_SECONDS = 30;
/** At the very end of the server: how long those that are under way are waited for, milliseconds. */
const SETTLE_MS = 5_000;

/** Headers of a delivery that count: the signature, and Linear's own number for it. */
export interface WebhookHeaders {
  readonly signature: unknown;
  readonly deliveryId: unknown;
}

/** What takes webhooks in. */
export interface WebhookIngress {
  /** Before the body is read. @throws OutliveError `webhook_refused`. */
  precheck(headers: WebhookHeaders): void;
  /**
   * Resolves once the delivery is durable, or counted as a repeat.
   * @throws OutliveError `webhook_refused`, or `store_unavailable` when it could not be written.
   */
  receive(raw: Buffer, headers: WebhookHeaders): Promise<void>;
}

const headersOf = (headers: Readonly<Record<string, unknown>>): WebhookHeaders => ({
  signature: headers['linear-signature'],
  deliveryId: headers['linear-delivery'],
});

const tooLarge = (): OutliveError =>
  new OutliveError('body_too_large', `Send at most ${BODY_MAX_BYTES / 1024 / 1024} MiB.`);

/** Bytes as they came, of any type: the signature is over them and not over what they mean. */
function useRawBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: BODY_MAX_BYTES }, (_, body, done) =>
    done(null, body),
  );
  app.setErrorHandler((error: FastifyError | OutliveError, _request, reply) => {
    if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return sendProblem(reply, tooLarge());
    if (!(error instanceof OutliveError)) throw error; // As everywhere else.
    if (error.status === 503) reply.header('retry-after', String(RETRY_AFTER_SECONDS));
    return sendProblem(reply, error);
  });
}

/** Lets what is under way be answered before the server cuts every connection. */
function answerToTheEnd(app: FastifyInstance): void {
  let open = 0;
  let settled: (() => void) | null = null;
  app.addHook('onRequest', (_request, reply, done) => {
    open += 1;
    // Of the answer itself: it comes too where the sender has gone.
    reply.raw.once('close', () => {
      open -= 1;
      if (open === 0) settled?.();
    });
    done();
  });
  app.addHook('preClose', (done) => {
    if (open === 0) {
      done();
      return;
    }
    const late = setTimeout(() => settled?.(), SETTLE_MS);
    settled = () => {
      settled = null;
      clearTimeout(late);
      done();
    };
  });
}

/** The route, on every listener where Linear is configured. */
export const linearRoutes: FastifyPluginCallback<{ ingress: WebhookIngress }> = (
  app,
  { ingress },
  done,
) => {
  useRawBodies(app);
  answerToTheEnd(app);
  const config = { isSigned: true };
  app.post(
    WEBHOOK_PATH,
    {
      config,
      schema: {
        summary: 'A webhook of Linear’s',
        description:
          'Signed by Linear (`Linear-Signature`) instead of a token, over the raw body. 200 says that it is stored, or was before.',
      },
      onRequest: (request, _reply, next) => {
        ingress.precheck(headersOf(request.headers));
        next();
      },
    },
    async (request, reply) => {
      const raw = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      await ingress.receive(raw, headersOf(request.headers));
      return reply.status(200).type('application/json').send('{"ok":true}');
    },
  );
  app.route({
    method: app.supportedMethods.filter((method) => method !== 'POST'),
    url: WEBHOOK_PATH,
    config: { ...config, isHidden: true },
    // Before any body is read.
    onRequest: (_request, reply, next) => {
      reply.header('allow', 'POST');
      next(new OutliveError('method_not_allowed', 'Linear sends POST.'));
    },
    handler: () => undefined,
  });
  done();
};
