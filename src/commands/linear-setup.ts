/**
 * `outlive linear setup`: what a person does in Linear and on this machine, step by step, with
 * what can be checked of it. Reads secrets from their files, writes none, and shows none.
 */
import path from 'node:path';
import { EXIT } from '../domain/errors.ts';
import type { Context } from './context.ts';
import { checkSetup, type Step } from './linear-checks.ts';
import type { JsonOption } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

export interface SetupOptions extends JsonOption {
  readonly check?: boolean;
}

/** The directory of config.json is where its reader looks for everything else of a person's. */
function guide({ config }: Context): string[] {
  const { configFile } = config.directories;
  const directory = path.dirname(configFile);
  const secret = (name: string): string => path.join(directory, `linear-${name}`);
  const put = (name: string): string => `     install -m 600 /dev/stdin ${secret(name)}`;
  const section = {
    linear: {
      clientId: 'FROM-LINEAR',
      clientSecretFile: secret('client-secret'),
      webhookSecretFile: secret('webhook-secret'),
      repositories: [{ path: '/srv/app', default: true }],
    },
  };
  const port = config.port === null || config.port === 0 ? 'PORT' : String(config.port);
  return [
    '1. Have a public HTTPS URL that leads here: a tunnel or a reverse proxy to',
    `     http://127.0.0.1:${port}/linear/webhook`,
    '   Only that path has to be reachable.',
    '2. In Linear, as an admin: Settings, API, OAuth applications, new application.',
    '   Its name must not contain "Linear"; it is what people mention and delegate to.',
    '   Turn on "Client credentials". Turn on "Webhooks", with the public URL that ends in',
    '   /linear/webhook, and tick "Agent session events". Without that tick Linear only shows',
    '   a badge and tells nobody.',
    '3. Put the two secrets into files that only you can read. Each waits for you to paste,',
    '   then Enter and Ctrl-D; nothing is left in a history or in a list of processes:',
    put('client-secret'),
    put('webhook-secret'),
    '   Where systemd starts the daemon, LoadCredential= and clientSecretCredential,',
    '   webhookSecretCredential do the same.',
    `4. Name them in ${configFile}, and the repositories issues are about:`,
    ...JSON.stringify(section, null, 2)
      .split('\n')
      .map((line) => `     ${line}`),
    '5. Install the app in the workspace, as an admin, by opening this once (CLIENT_ID and',
    '   REDIRECT_URI as in the application):',
    '     https://linear.app/oauth/authorize?client_id=CLIENT_ID&redirect_uri=REDIRECT_URI&response_type=code&scope=read,write,app:assignable,app:mentionable&actor=app',
    '   Once more whenever "Agent session events" was ticked later.',
    '6. outlive daemon restart',
    '7. Delegate an issue to the app. The first answer is there within seconds.',
    '',
  ];
}

const MARKS: Readonly<Record<Step['verdict'], string>> = {
  ok: 'ok',
  note: 'note',
  problem: 'problem',
  skipped: '-',
};

/** Exit 1 where a step has a problem. */
export async function setUp(context: Context, { check, json }: SetupOptions): Promise<number> {
  const { stdout, stderr } = context;
  if (!check && !json) for (const line of guide(context)) await stdout.line(sanitizeLine(line));
  const steps = await checkSetup(context);
  if (json) await stdout.json({ steps });
  else {
    const rows = steps.map(({ step, verdict, found }) =>
      [MARKS[verdict], step, found].map(sanitizeLine),
    );
    for (const line of table(rows)) await stdout.line(line);
    await stderr.line(sanitizeLine(nextStep(steps)));
  }
  return steps.some(({ verdict }) => verdict === 'problem') ? EXIT.failed : EXIT.ok;
}

/** What to do first. */
export function nextStep(steps: readonly Step[]): string {
  const next = steps.find(({ verdict }) => verdict === 'problem') ?? steps.find((s) => s.advice);
  return next?.advice ? `Next: ${next.advice}` : 'All that can be checked is as it should be.';
}
