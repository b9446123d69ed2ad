/** `outlive approvals`, `approve` and `deny`: what agents ask, and a person's answers. */
import { type Command, Option } from 'commander';
import type { ApprovalView } from '../api/schemas-approvals.ts';
import { APPROVAL_STATUSES, type ApprovalStatus } from '../domain/approval.ts';
import { EXIT, OutliveError } from '../domain/errors.ts';
import { type Context, example, type Frame, workspaceFlag } from './context.ts';
import { JSON_LIST, type JsonOption, type Listing, printList } from './listing.ts';
import { sanitize, sanitizeLine } from './sanitize.ts';
import { table, truncate } from './table.ts';

interface ListOptions extends JsonOption {
  readonly status?: ApprovalStatus;
  readonly all?: boolean;
  readonly of?: string;
}

interface DecideOptions extends JsonOption {
  readonly reason?: string;
  readonly fail?: boolean;
  readonly idempotencyKey?: string;
}

/** Cells of the terminal. */
const ARGUMENTS_SHOWN = 80;

/** What it asks for, in one line: the command of bash, the path of an edit. */
function askedFor({ arguments: given }: ApprovalView): string {
  const named = given !== null && typeof given === 'object' ? given : {};
  const { command, path } = named as { command?: unknown; path?: unknown };
  const text = [command, path].find((one) => typeof one === 'string') ?? JSON.stringify(given);
  return truncate(sanitizeLine(String(text)), ARGUMENTS_SHOWN);
}

const APPROVALS: Listing<ApprovalView> = {
  header: ['APPROVAL', 'HANDLE', 'STATUS', 'TOOL', 'ASKED', 'EXPIRES', 'WHAT'],
  row: (approval) => [
    approval.id,
    approval.handle,
    approval.status,
    approval.tool,
    approval.requestedAt,
    approval.status === 'pending' ? approval.expiresAt : '-',
    askedFor(approval),
  ],
  none: 'Nobody is asked anything. Earlier questions: outlive approvals --all',
};

async function list({ client, ...context }: Context, options: ListOptions): Promise<number> {
  const status = options.status ?? (options.all ? undefined : 'pending');
  const page = await client.listApprovals({
    ...(status === undefined ? {} : { status }),
    ...(options.of === undefined ? {} : { workUnit: options.of }),
  });
  return printList({ client, ...context }, page, options, APPROVALS);
}

/** The human form, line by line. */
export function approvalLines(approval: ApprovalView): string[] {
  const { decidedAt, decidedBy, decisionReason, diff } = approval;
  const optional = (name: string, value: string | null): string[][] =>
    value === null ? [] : [[name, value]];
  const fields = [
    ['work unit', approval.handle],
    ['tool', approval.tool],
    ['in', approval.cwd],
    ...optional('because', approval.reason),
    ['asked', approval.requestedAt],
    ...(approval.status === 'pending' ? [['expires', approval.expiresAt]] : []),
    ...optional('decided', decidedAt === null ? null : `${decidedAt} by ${decidedBy ?? '?'}`),
    ...optional('reason', decisionReason),
    ['answer', approval.checkpoint],
    ...optional('why not', approval.failureCode),
  ];
  // As it stands: spaces in a command or a diff are what is decided on.
  const texts = JSON.stringify(approval.arguments, null, 2);
  return [
    `${approval.id}  ${approval.status}`,
    ...table(fields.map(([name = '', value = '']) => [`  ${name}`, sanitizeLine(value)])),
    '',
    ...sanitize(texts).split('\n'),
    ...(diff === null ? [] : ['', ...sanitize(diff).split('\n')]),
  ];
}

async function show(
  { client, stdout }: Context,
  id: string,
  { json }: JsonOption,
): Promise<number> {
  const approval = await client.getApproval(id);
  if (json) await stdout.json(approval);
  else for (const line of approvalLines(approval)) await stdout.line(line);
  return EXIT.ok;
}

/** A handle may begin like one. */
const IS_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The id that was given, or of the one question of the work unit that was. */
async function idOf({ client }: Context, given: string): Promise<string> {
  if (IS_ID.test(given)) return given;
  const { items } = await client.listApprovals({ workUnit: given, status: 'pending' });
  const [only, second] = items;
  if (only && !second) return only.id;
  throw new OutliveError(
    'not_found',
    only
      ? `${given} asks ${items.length} questions. Name one by its id: outlive approvals --of ${given}.`
      : `${given} asks nothing. See: outlive approvals --all --of ${given}.`,
  );
}

async function say(
  { stdout, stderr, config }: Context,
  approval: ApprovalView,
  { json }: JsonOption,
): Promise<number> {
  if (json) {
    await stdout.json(approval);
    return EXIT.ok;
  }
  const watch = `outlive logs ${approval.handle} --follow${workspaceFlag(config.workspace)}`;
  await stderr.line(
    sanitizeLine(`${approval.tool} of ${approval.handle} is ${approval.status}. Watch: ${watch}`),
  );
  return EXIT.ok;
}

async function approve(context: Context, given: string, options: DecideOptions): Promise<number> {
  const { reason, idempotencyKey } = options;
  const input = reason === undefined ? {} : { reason };
  const id = await idOf(context, given);
  return say(context, await context.client.approve(id, input, idempotencyKey), options);
}

async function deny(context: Context, given: string, options: DecideOptions): Promise<number> {
  const { reason, fail = false, idempotencyKey } = options;
  const input = { fail, ...(reason === undefined ? {} : { reason }) };
  const id = await idOf(context, given);
  return say(context, await context.client.deny(id, input, idempotencyKey), options);
}

const WHICH = 'its id, or the handle of a work unit that asks one question';
const KEY = 'a second answer with the same key is the first one';

/** Adds `approvals` to the program. */
export function registerApprovals(program: Command, frame: Frame): void {
  const approvals = program
    .command('approvals')
    .description('List what agents ask before they act, or show one question.')
    .addHelpText('after', example('outlive approvals', 'outlive approve ID'));
  approvals
    .command('list', { isDefault: true })
    .description('List open questions, newest first.')
    .option('--all', 'answered ones, too')
    .addOption(new Option('--status <status>', 'only these').choices(APPROVAL_STATUSES))
    .option('--of <handle>', 'only of this work unit')
    .option('--json', JSON_LIST)
    .addHelpText('after', example('outlive approvals list --of issue42'))
    .action((options: ListOptions, command: Command) =>
      frame.run(command, (context) => list(context, options)),
    );
  approvals
    .command('show')
    .description('Show one question: arguments, diff, what became of it.')
    .argument('<id>', 'its id')
    .option('--json', 'the approval as JSON')
    .addHelpText('after', example('outlive approvals show ID'))
    .action((id: string, options: JsonOption, command: Command) =>
      frame.run(command, (context) => show(context, id, options)),
    );
}

/** Adds `approve` to the program. */
export function registerApprove(program: Command, frame: Frame): void {
  program
    .command('approve')
    .description('Let a call act, once.')
    .argument('<approval>', WHICH)
    .option('--reason <text>', 'kept with the decision')
    .option('--idempotency-key <key>', KEY)
    .option('--json', 'the approval as JSON')
    .addHelpText('after', example('outlive approve issue42'))
    .action((given: string, options: DecideOptions, command: Command) =>
      frame.run(command, (context) => approve(context, given, options)),
    );
}

/** Adds `deny` to the program. */
export function registerDeny(program: Command, frame: Frame): void {
  program
    .command('deny')
    .description('Refuse a call; the model is told, and the run goes on.')
    .argument('<approval>', WHICH)
    .option('--reason <text>', 'told to the model')
    .option('--fail', 'end the run as failed instead')
    .option('--idempotency-key <key>', KEY)
    .option('--json', 'the approval as JSON')
    .addHelpText('after', example('outlive deny issue42 --reason "use the staging host"'))
    .action((given: string, options: DecideOptions, command: Command) =>
      frame.run(command, (context) => deny(context, given, options)),
    );
}
