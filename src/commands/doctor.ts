/** `outlive doctor`: what outlive stands on, looked at one by one, and what to do about it. */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Command } from 'commander';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { trySandbox } from '../sandbox-trial.ts';
import { type Context, example, type Frame } from './context.ts';
import { connectHost } from './daemon-connect.ts';
import { withHost } from './daemon-host.ts';
import type { JsonOption } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

/** `problem`: outlive does not keep its promises like this. `note`: worth knowing. */
type Verdict = 'ok' | 'note' | 'problem';

interface Finding {
  readonly check: string;
  readonly verdict: Verdict;
  /** What was seen. */
  readonly found: string;
  /** What to do; null where nothing is to be done. */
  readonly advice: string | null;
}

/** logind knows who is logged in and who lingers, and nobody else. */
const UNKNOWN_USER = /not logged in or lingering/;
/** logind answers at once, or not at all. */
const LOGINCTL_MS = 5_000;

const ok = (check: string, found: string): Finding => ({
  check,
  verdict: 'ok',
  found,
  advice: null,
});

const sentence = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

/** The user manager is what keeps attempts; without it they are plain processes. */
async function userManager(context: Context): Promise<Finding> {
  const check = 'user manager';
  try {
    const { workspace } = context.config;
    const host = { ...context, connectHost: () => connectHost(context) };
    const installed = await withHost(host, (units) => units.isInstalled(workspace));
    return ok(check, installed ? 'answers, and the daemon is installed' : 'answers');
  } catch (error) {
    return {
      check,
      verdict: 'note',
      found: sentence(error),
      advice: 'runs would be plain processes, weaker than units (docs/operations.md)',
    };
  }
}

/** Without lingering the user manager, and every unit in it, ends with the last session (loginctl(1)). */
async function lingering(): Promise<Finding> {
  const check = 'lingering';
  const { username, uid } = os.userInfo();
  const advice = `as this user or as root: loginctl enable-linger ${username}`;
  const argv = ['show-user', String(uid), '--property=Linger', '--value'];
  const off = { check, verdict: 'problem', advice } as const;
  try {
    const { stdout } = await promisify(execFile)('loginctl', argv, { timeout: LOGINCTL_MS });
    if (stdout.trim() === 'yes') return ok(check, 'on: units run on when you log out');
    return { ...off, found: 'off: logging out ends daemon and runs' };
  } catch (error) {
    const said = sentence(error);
    if (UNKNOWN_USER.test(said)) return { ...off, found: 'off, and you are not logged in' };
    return { check, verdict: 'note', found: `cannot be told: ${said}`, advice };
  }
}

/** As an attempt would have it: in a unit where there is a manager, else as a plain process. */
async function sandbox(context: Context): Promise<Finding> {
  const check = 'sandbox';
  const host = { ...context, connectHost: () => connectHost(context) };
  const place = path.join(os.tmpdir(), `outlive-probe-${randomUUID()}`);
  const inUnit = await withHost(host, (units) =>
    trySandbox(place, 'unit', (argv, hidden) => units.runProbe(argv, hidden)),
  ).catch(() => null);
  const { unit, nest, why } = inUnit ?? (await trySandbox(place, 'plain', runPlainly));
  const setting = `as configured: ${context.config.sandbox}`;
  if (nest)
    return ok(check, `a nest can be had, ${inUnit ? 'in a unit' : 'without a unit'}; ${setting}`);
  const advice = `${NEST_ADVICE}; docs/limits.md says what is open until then`;
  const found = `${unit ? 'a unit without a nest' : 'none'} can be had: ${why}; ${setting}`;
  // Whoever wants none misses nothing.
  return { check, verdict: context.config.sandbox === 'off' ? 'note' : 'problem', found, advice };
}

/** What stands in the way, most likely: user_namespaces(7), and what distributions add to it. */
const NEST_ADVICE =
  'allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns) and install util-linux and coreutils';
const PROBE_MS = 15_000;

async function runPlainly([program = '', ...args]: readonly string[]): Promise<null> {
  const options = { timeout: PROBE_MS, killSignal: 'SIGKILL' } as const;
  await promisify(execFile)(program, args, options);
  return null;
}

async function daemon({ client, config }: Context): Promise<Finding> {
  const check = 'daemon';
  try {
    const { version } = await client.runtime();
    return ok(check, `version ${version} answers for workspace ${config.workspace}`);
  } catch (error) {
    const advice = 'outlive daemon start; outlive daemon logs';
    const isDown = error instanceof OutliveError && error.code === 'daemon_unreachable';
    return { check, verdict: isDown ? 'note' : 'problem', found: sentence(error), advice };
  }
}

/** Looks at everything at once; needs no daemon and changes nothing. @returns 1 when there is a problem. */
async function doctor(context: Context, { json }: JsonOption): Promise<number> {
  const findings = await Promise.all([
    userManager(context),
    lingering(),
    sandbox(context),
    daemon(context),
  ]);
  if (json) await context.stdout.json({ findings });
  else {
    const rows = findings.map(({ check, verdict, found, advice }) =>
      [verdict, check, advice === null ? found : `${found}. ${advice}`].map(sanitizeLine),
    );
    for (const line of table(rows)) await context.stdout.line(line);
  }
  return findings.some(({ verdict }) => verdict === 'problem') ? EXIT.failed : EXIT.ok;
}

/** Adds `doctor` to the program. */
export function registerDoctor(program: Command, frame: Frame): void {
  program
    .command('doctor')
    .description('Look at what outlive stands on, and say what to do; exit 1 for a problem.')
    .option('--json', 'as {"findings":[…]}')
    .addHelpText('after', example('outlive doctor'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, (context) => doctor(context, options)),
    );
}
