/** `outlive linear`: how the Linear agent is, and how it is set up. */
import type { Command } from 'commander';
import type { LinearDetails } from '../api/schemas-linear.ts';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame } from './context.ts';
import { formatDuration } from './duration.ts';
import { type SetupOptions, setUp } from './linear-setup.ts';
import type { JsonOption } from './listing.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

const ago = (at: string | null, now: number): string =>
  at === null ? 'never' : `${formatDuration(Math.max(0, now - Date.parse(at)))} ago`;

const until = (at: string, now: number): string =>
  formatDuration(Math.max(0, Date.parse(at) - now));

type Pool = LinearDetails['budget']['requests'];
const poolText = (pool: Pool, now: number): string =>
  pool === null
    ? 'not known yet'
    : `${pool.remaining} of ${pool.limit} left for ${until(pool.resetAt, now)}`;

function authText({ authProblem: problem }: LinearDetails, now: number): string {
  if (problem === null) return 'ok';
  const since = `for ${formatDuration(Math.max(0, now - Date.parse(problem.since)))}`;
  return `PROBLEM ${since}: ${problem.message} (${problem.code}). outlive linear setup --check`;
}

function permissionText({ permissions }: LinearDetails, now: number): string {
  if (permissions === null) return 'as when the app was installed';
  const { addedTeamIds: added, removedTeamIds: removed, at } = permissions;
  return `changed ${ago(at, now)}: ${added.length} added, ${removed.length} taken away`;
}

function sweepText({ sweep }: LinearDetails, now: number): string {
  const last = ago(sweep.lastAt, now);
  return sweep.problem === null ? last : `${last}, failing: ${sweep.problem.message}`;
}

/** The human form, line by line. @param now milliseconds since the epoch. */
export function linearLines(status: LinearDetails, now: number): string[] {
  const { deliveries, outbox, budget } = status;
  const oldest = outbox.oldestPendingAt;
  const waiting = oldest === null ? '' : `, the oldest from ${ago(oldest, now)}`;
  const closed =
    budget.closedUntil === null ? '' : `, closed for ${until(budget.closedUntil, now)}`;
  const rows = [
    ['auth', authText(status, now)],
    ['app user', status.appUserId ?? 'not asked yet'],
    ['organization', status.organizationId ?? 'not asked yet'],
    ['teams', permissionText(status, now)],
    ['last webhook', ago(deliveries.lastReceivedAt, now)],
    ['deliveries', `${deliveries.new} new, ${deliveries.failed} failed`],
    ['last sweep', sweepText(status, now)],
    ['outbox', `${outbox.pending} pending, ${outbox.failed} failed${waiting}`],
    ['open', `${status.openTurns} turns in ${status.openSessions} sessions`],
    ['requests', `${poolText(budget.requests, now)}${closed}`],
    ['complexity', poolText(budget.complexity, now)],
  ];
  return table(rows.map((row) => row.map(sanitizeLine)));
}

async function status(context: Context, { json }: JsonOption): Promise<number> {
  const { client, stdout, stderr } = context;
  const view = await client.linearStatus();
  if (json) await stdout.json(view);
  else if (view.status === null) {
    await stderr.line('Linear is not configured. See: outlive linear setup');
  } else for (const line of linearLines(view.status, Date.now())) await stdout.line(line);
  return view.status?.authProblem ? EXIT.failed : EXIT.ok;
}

/** Adds `linear` to the program. */
export function registerLinear(program: Command, frame: Frame): void {
  const linear = program
    .command('linear')
    .description('The agent of Linear: how it is, and how it is set up.')
    .addHelpText('after', example('outlive linear status'));
  linear
    .command('status', { isDefault: true })
    .description('Show auth, webhooks, what is to be told, turns and budget; exit 1 without auth.')
    .option('--json', 'as {"configured":…,"status":…}')
    .addHelpText('after', example('outlive linear status'))
    .action((options: JsonOption, command: Command) =>
      frame.run(command, (context) => status(context, options)),
    );
  linear
    .command('setup')
    .description('Say what is to be done in Linear and here, and check each step that can be.')
    .option('--check', 'only check; exit 1 for a problem')
    .option('--json', 'the checks as {"steps":[…]}')
    .addHelpText('after', example('outlive linear setup', 'outlive linear setup --check'))
    .action((options: SetupOptions, command: Command) =>
      frame.run(command, (context) => setUp(context, options)),
    );
}
