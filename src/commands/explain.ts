/** `outlive explain`: why work is queued, blocked, stuck or over. */
import type { Command } from 'commander';
import type { Explanation } from '../api/schemas-explain.ts';
import { EXIT } from '../domain/errors.ts';
import { type Context, example, type Frame } from './context.ts';
import { formatDuration } from './duration.ts';
import type { JsonOption } from './listing.ts';
import { outcomeText } from './outcome-text.ts';
import { spendText } from './providers.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

async function explain(
  { client, stdout }: Context,
  handle: string,
  { json }: JsonOption,
): Promise<number> {
  const explanation = await client.explain(handle);
  if (json) await stdout.json(explanation);
  else for (const line of explainLines(explanation, Date.now())) await stdout.line(line);
  return EXIT.ok;
}

function waitingLines({ waiting }: Explanation, now: number): string[] {
  if (!waiting) return [];
  const { reason, since, resource, heldBy, nextStartAt } = waiting;
  const optional = (name: string, value: string | null): string[][] =>
    value === null ? [] : [[`  ${name}`, value]];
  const rows = [
    ['  waits because', reason],
    ['  since', `${since} (${formatDuration(now - Date.parse(since))})`],
    ...optional('for', resource),
    ...optional('held by', heldBy),
    ...optional('next start', nextStartAt),
  ];
  return table(rows.map((row) => row.map(sanitizeLine)));
}

/** Only what was spent or is limited is worth a line. */
function spendLines({ spend }: Explanation): string[] {
  const isTold = spend.tokens > 0 || spend.maxCostUsd !== null || spend.maxTokens !== null;
  return isTold ? [`  spent  ${spendText(spend)}`] : [];
}

function attemptLines(attempt: Explanation['attempts'][number]): string[] {
  const { attemptNumber, status, unit, rule, evidence, errorCode, errorMessage } = attempt;
  const why = errorCode === null ? '' : `: ${outcomeText(errorCode, errorMessage)}`;
  const decided = rule ? [['    rule', `${rule.number}: ${rule.when}`]] : [];
  const rows = [
    ['    unit', unit],
    ...decided,
    ...evidence.map(({ name, value }) => [`    ${name}`, value]),
  ];
  return [
    sanitizeLine(`  attempt ${attemptNumber}  ${status}${why}`),
    ...table(rows.map((row) => row.map(sanitizeLine))),
  ];
}

/** The human form, line by line. `now` is milliseconds since the epoch. */
export function explainLines(explanation: Explanation, now: number): string[] {
  const { handle, summary, attempts, canCancel, canRetry } = explanation;
  const verbs = [...(canCancel ? ['cancel'] : []), ...(canRetry ? ['retry'] : [])];
  const possible = verbs.map((verb) => `outlive ${verb} ${handle}`);
  return [
    sanitizeLine(`${handle}: ${summary}`),
    ...waitingLines(explanation, now),
    ...spendLines(explanation),
    ...attempts.flatMap(attemptLines),
    ...(possible.length === 0 ? [] : [`  possible: ${possible.join(', ')}`]),
  ];
}

/** Adds `explain` to the program. */
export function registerExplain(program: Command, frame: Frame): void {
  program
    .command('explain')
    .description('Say why work is queued, blocked, stuck or over, with the evidence.')
    .argument('<handle>', 'its handle or id')
    .option('--json', 'as JSON')
    .addHelpText('after', example('outlive explain issue42'))
    .action((handle: string, options: JsonOption, command: Command) =>
      frame.run(command, (context) => explain(context, handle, options)),
    );
}
