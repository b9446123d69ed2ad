/** The Linear agent of a daemon, from configuration: who it is, where it works, how it is. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { LinearAppConfig } from '../domain/linear-config.ts';
import type { LinearCredentials } from '../linear/auth.ts';
import { AuthHealth } from '../linear/auth-health.ts';
import { createLinearClient, type LinearClient } from '../linear/client.ts';
import { createLinearService, type LinearService } from '../linear/service.ts';
import type { LinearLive } from '../linear/status.ts';
import { createSweep, type Sweep } from '../linear/sweep.ts';
import { recordSwept } from '../linear/swept.ts';
import { keepTidy } from '../linear/tidy-up.ts';
import { tokenFile } from '../linear/token-file.ts';
import { createWorktrees } from '../linear/worktrees.ts';
import type { Context } from '../supervisor/context.ts';
import type { Supervisor } from '../supervisor/supervisor.ts';
import { systemTimers } from '../systemd/timers.ts';
import { readSecret } from './linear.ts';
import { linearPlaces } from './linear-places.ts';

export interface LinearAgentParts {
  readonly config: Config;
  readonly context: Context;
  readonly supervisor: Supervisor;
}

/** Turns, words and sweeps of one daemon. */
export interface RunningLinear {
  /** A webhook was stored: a hint. */
  deliver(): void;
  live(): LinearLive;
  start(): void;
  /** Begins nothing more, and gives calls under way up: what they were to say is stored. */
  close(): Promise<void>;
}

/** @throws OutliveError `config_unreadable` for a secret that cannot be read. */
function credentialsOf({
  clientId,
  clientSecretFile,
  tokensFile,
}: LinearAppConfig): LinearCredentials {
  const clientSecret = readSecret(clientSecretFile, 'client secret');
  const app = { clientId, clientSecret };
  return tokensFile === null
    ? { grant: 'client_credentials', ...app }
    : { grant: 'authorization_code', ...app, tokens: tokenFile(tokensFile) };
}

interface Parts {
  readonly client: LinearClient;
  readonly service: LinearService;
  readonly sweep: Sweep;
  readonly endTidying: () => Promise<void>;
  readonly cancelCalls: () => void;
}

/** Somebody waits for the answer: what does not end by itself by then is killed. */
const INTERRUPT_GRACE_MS = 5_000;

/** How long an end waits for tidying. */
const CLOSE_MS = 500;

const said = (log: Logger): Logger => log.child({ part: 'linear' });

function sweepOf({ context }: LinearAgentParts, client: LinearClient, deliver: () => void): Sweep {
  const { store, entropy, writer, log } = context;
  return createSweep({
    api: client,
    facts: {
      get: (name) => store.linearFacts.get(name)?.value ?? null,
      put: (name, value) => writer.commit(({ at }) => store.linearFacts.put(name, value, at)),
    },
    known: {
      isOwn: (id) => store.linear.session(id)?.own === true,
      isKnown: (id) => store.linear.session(id)?.known === true,
      isHeardOf: (id) => store.linear.session(id) !== null,
    },
    deliver: (events) => recordSwept(events, { store: () => store, entropy, onDelivery: deliver }),
    entropy,
    timers: systemTimers,
    log: said(log),
  });
}

function join(parts: LinearAgentParts, credentials: LinearCredentials): Parts {
  const { config, context, supervisor } = parts;
  const { linear } = config;
  if (linear === null) throw new Error('there is no Linear agent without its section');
  const { store, entropy, settings } = context;
  const log = said(context.log);
  const calls = new AbortController();
  const names = [...linear.names];
  const client = createLinearClient({
    credentials,
    entropy,
    log,
    health: new AuthHealth({ store, entropy, log, onGood: () => setImmediate(catchUp) }),
    urls: linear.urls,
    onNames: (found) => names.push(...found.filter((name) => !names.includes(name))),
    signal: calls.signal,
  });
  // What could not be heard or said meanwhile.
  const catchUp = (): void => {
    service.outbox.resume();
    void sweep.now();
  };
  const worktrees = createWorktrees({
    ...linearPlaces(config),
    environment: settings.runnerEnvironment,
  });
  const service = createLinearService({
    context,
    supervisor,
    api: client,
    worktrees,
    routing: { repositories: linear.repositories, cwd: linear.cwd ?? undefined },
    names,
    request: {
      timeoutPolicy: { cancelGraceMs: INTERRUPT_GRACE_MS },
      ...(linear.model === null ? {} : { model: linear.model }),
    },
    onRevoked: () => client.dropTokens(),
  });
  const sweep = sweepOf(parts, client, () => service.deliver());
  return {
    client,
    service,
    sweep,
    endTidying: keepTidy({ api: client, worktrees, store, log, timers: systemTimers }),
    cancelCalls: () => calls.abort(),
  };
}

/**
 * Null where Linear is not configured, or nobody is named as whom it speaks: then webhooks are
 * kept for a daemon that can.
 * @throws OutliveError `config_unreadable`.
 */
export function openLinearAgent(parts: LinearAgentParts): RunningLinear | null {
  const app = parts.config.linear?.app ?? null;
  if (app === null) return null;
  const { client, service, sweep, endTidying, cancelCalls } = join(parts, credentialsOf(app));
  return {
    deliver: () => service.deliver(),
    live: () => ({
      viewer: client.knownViewer(),
      budget: client.budget(),
      sweepProblem: sweep.problem(),
    }),
    start: () => {
      service.start();
      sweep.start();
    },
    close: async () => {
      cancelCalls();
      const soon = pause(CLOSE_MS, undefined, { ref: false });
      // A git that hangs holds nobody up: what it was about to remove is looked at again.
      await Promise.all([service.close(), sweep.close(), Promise.race([endTidying(), soon])]);
    },
  };
}
