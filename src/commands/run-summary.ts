/** The last lines of `outlive run`: how it ended, how long it took, what it cost. */
import type { LastWord } from '../domain/spool.ts';
import { workspaceFlag } from './context.ts';
import { formatDuration } from './duration.ts';
import { formatCost } from './live-figures.ts';
import { outcomeLine, outcomeText } from './outcome-text.ts';
import type { RunOutcome } from './run-outcome.ts';
import { sanitizeLine } from './sanitize.ts';

/** One line on the end, and for other ends than success also why and where to look. */
export function runSummary(handle: string, outcome: RunOutcome, workspace: string): string[] {
  const { left } = outcome;
  const took = outcome.tookMs === null ? '' : ` after ${formatDuration(outcome.tookMs)}`;
  const head = [`${handle} ${outcome.status}${took}`, ...figures(outcome.lastWord)].join(' · ');
  const found = left === null ? [] : [sanitizeLine(`outcome ${outcomeLine(left)}`)];
  if (outcome.status === 'succeeded' && (left === null || left.state === 'satisfied')) {
    return [head, ...found];
  }
  const { errorCode, errorMessage } = outcome;
  const why = errorCode === null ? [] : [sanitizeLine(outcomeText(errorCode, errorMessage))];
  const flag = workspaceFlag(workspace);
  const where = `Look closer with: outlive show ${handle}${flag}, outlive logs ${handle}${flag}`;
  return [head, ...why, ...found, where];
}

function figures(word: LastWord | null): string[] {
  const cost = word?.costUsd == null ? [] : [formatCost(word.costUsd)];
  const usage = word?.usage;
  if (!usage || usage.totalTokens === 0) return cost;
  const count = (tokens: number): string => tokens.toLocaleString('en-US');
  const cached = usage.cacheReadTokens + usage.cacheWriteTokens;
  const split = `in ${count(usage.inputTokens)}, out ${count(usage.outputTokens)}, cached ${count(cached)}`;
  return [...cost, `${count(usage.totalTokens)} tokens (${split})`];
}
