/** The checks of `outlive linear setup`, in the order in which a person mends things. */
import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import type { LinearStatusView } from '../api/schemas-linear.ts';
import { request } from '../client/transport.ts';
import type { LinearAppConfig, LinearConfig } from '../domain/linear-config.ts';
import { askViewer, mintToken, trialWebhook } from '../linear/trial.ts';
import type { Context } from './context.ts';

/** `skipped`: something before it has to be mended first. */
export interface Step {
  readonly step: string;
  readonly verdict: 'ok' | 'note' | 'problem' | 'skipped';
  /** What was seen. */
  readonly found: string;
  /** What to do; null where nothing is to be done. */
  readonly advice: string | null;
}

const SELF_TEST_MS = 10_000;
/** Read, write or execute for anybody but the owner. */
const OTHERS = 0o077;

const ok = (step: string, found: string): Step => ({ step, verdict: 'ok', found, advice: null });
const problem = (step: string, found: string, advice: string): Step => ({
  ...{ step, verdict: 'problem', found, advice },
});
const note = (step: string, found: string, advice: string | null = null): Step => ({
  ...{ step, verdict: 'note', found, advice },
});
const skipped = (step: string, why: string): Step => ({
  ...{ step, verdict: 'skipped', found: why, advice: null },
});

interface Secret {
  readonly step: Step;
  /** Null where it cannot be read here. */
  readonly value: string | null;
}

/** A secret in its file; its content is never told. */
function readSecret(step: string, file: string): Secret {
  const bad = (found: string, advice: string): Secret => ({
    step: problem(step, found, advice),
    value: null,
  });
  if (file.startsWith('$CREDENTIALS_DIRECTORY')) {
    const found = 'a credential of the daemon’s unit, which only the daemon can read';
    return { step: note(step, found), value: null };
  }
  try {
    const value = readFileSync(file, 'utf8').trim();
    if (value === '') return bad(`${file} is empty`, `install -m 600 /dev/stdin ${file}`);
    const mode = statSync(file).mode & 0o777;
    if ((mode & OTHERS) !== 0) {
      return bad(`${file} can be read by others (${mode.toString(8)})`, `chmod 600 ${file}`);
    }
    return { step: ok(step, file), value };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return bad(`${file} cannot be read (${code})`, `install -m 600 /dev/stdin ${file}`);
  }
}

/** Token, app user and scopes, with Linear itself. */
async function appSteps({ app, urls, organizationId }: LinearConfig): Promise<Step[]> {
  const names = ['token', 'app user'] as const;
  if (app === null) {
    const advice = 'name clientId and clientSecretFile in config.json';
    return [problem('client secret', 'no clientId: nothing is ever answered', advice)];
  }
  const secret = readSecret('client secret', app.clientSecretFile);
  if (app.tokensFile !== null) return [secret.step, ...tokensSteps(app)];
  if (secret.value === null) {
    return [secret.step, ...names.map((name) => skipped(name, 'needs the client secret'))];
  }
  const { clientId } = app;
  const minted = await mintToken({ urls, clientId, clientSecret: secret.value, now: Date.now() });
  if ('problem' in minted) {
    const advice =
      'in the application: turn on "Client credentials", and compare client id and secret';
    return [secret.step, problem('token', minted.problem, advice), skipped('app user', 'no token')];
  }
  const scopes = 'minted, with the scopes read, write, app:assignable, app:mentionable';
  return [
    secret.step,
    ok('token', scopes),
    await viewerStep(urls.api, minted.token, organizationId),
  ];
}

/** Refreshing here would take the daemon's tokens from it. */
function tokensSteps({ tokensFile }: LinearAppConfig): Step[] {
  const { step } = readSecret('token', tokensFile ?? '');
  return [step, note('app user', 'the daemon alone uses these tokens; see outlive linear status')];
}

async function viewerStep(api: string, token: string, organizationId: string | null) {
  const step = 'app user';
  const viewer = await askViewer(api, token);
  if ('problem' in viewer) {
    return problem(step, viewer.problem, 'install the app in the workspace (actor=app)');
  }
  const found = `${viewer.id} of organization ${viewer.organizationId}`;
  if (organizationId === null || organizationId === viewer.organizationId) return ok(step, found);
  return problem(
    step,
    `${found}, but config.json says ${organizationId}`,
    'mend linear.organizationId, or leave it out',
  );
}

function repositorySteps({ config }: Context): Step[] {
  const step = 'repositories';
  const repositories = config.file.linear?.repositories ?? [];
  if (repositories.length === 0) {
    const where = config.file.linear?.cwd ?? config.home;
    return [note(step, `none: every issue is worked on in ${where}`)];
  }
  const isRepository = (directory: string): boolean =>
    ['.git', 'HEAD'].some(
      (name) => statSync(path.join(directory, name), { throwIfNoEntry: false }) !== undefined,
    );
  const missing = repositories.filter(({ path: place }) => !isRepository(place));
  const [first] = missing;
  if (first === undefined) return [ok(step, repositories.map((one) => one.path).join(', '))];
  return [problem(step, `${first.path} is no repository`, `clone it to ${first.path}`)];
}

async function daemonStep({ client }: Context): Promise<[Step, LinearStatusView | null]> {
  const step = 'daemon';
  try {
    const view = await client.linearStatus();
    if (view.status === null) {
      const found = 'runs with a configuration without Linear';
      return [problem(step, found, 'outlive daemon restart'), null];
    }
    const { authProblem } = view.status;
    return authProblem === null
      ? [ok(step, 'answers, and knows of Linear'), view]
      : [problem(step, authProblem.message, 'mend that; the daemon tries again by itself'), view];
  } catch (error) {
    return [problem(step, (error as Error).message, 'outlive daemon start'), null];
  }
}

/** Posts to the daemon as Linear would, once with the secret's signature and once with none. */
async function webhookStep({ config }: Context, secret: string | null): Promise<Step> {
  const step = 'webhook';
  if (secret === null) return skipped(step, 'needs the webhook secret');
  const { body, signature } = trialWebhook(secret, Date.now());
  const post = async (headers: Record<string, string>): Promise<number> => {
    const type = { 'content-type': 'application/json' };
    const answer = await request(config.directories.apiSocket, {
      ...{ method: 'POST', path: '/linear/webhook', body, timeoutMs: SELF_TEST_MS },
      headers: { ...type, ...headers },
    });
    return answer.status;
  };
  try {
    const [signed, unsigned] = [await post({ 'linear-signature': signature }), await post({})];
    if (signed === 200 && unsigned === 401)
      return ok(step, 'a signed one is taken, others are not');
    const found = `a signed one is answered ${signed}, an unsigned one ${unsigned}`;
    return problem(step, found, 'outlive daemon restart, so that it reads the secret as it is now');
  } catch (error) {
    return problem(step, (error as Error).message, 'outlive daemon start');
  }
}

/** Nobody but Linear can show that the public URL leads here. */
function arrivalStep(view: LinearStatusView | null): Step {
  const step = 'from Linear';
  if (!view?.status) return skipped(step, 'needs the daemon');
  const { lastReceivedAt } = view.status.deliveries;
  if (lastReceivedAt !== null)
    return ok(step, `the newest webhook of a session came at ${lastReceivedAt}`);
  const advice =
    'delegate an issue to the app; if nothing comes, see "Agent session events" and the public URL';
  return note(step, 'no webhook of a session came yet', advice);
}

/** Looks at everything; changes nothing. */
export async function checkSetup(context: Context): Promise<Step[]> {
  const { linear, directories } = context.config;
  if (linear === null) {
    const advice = `add the section "linear" to ${directories.configFile}; outlive linear setup shows one`;
    return [problem('config.json', 'has no section "linear"', advice)];
  }
  const secret = readSecret('webhook secret', linear.webhookSecretFile);
  const app = await appSteps(linear);
  const [daemon, view] = await daemonStep(context);
  const webhook = view
    ? await webhookStep(context, secret.value)
    : skipped('webhook', 'needs the daemon');
  return [
    ok('config.json', 'has a section "linear"'),
    secret.step,
    ...app,
    ...repositorySteps(context),
    daemon,
    webhook,
    arrivalStep(view),
  ];
}
