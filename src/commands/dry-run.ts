/** `outlive run --dry-run`: what would be started, and when. */

import type { StartWorkUnitInput } from '../api/schemas.ts';
import type { DryRun } from '../api/schemas-explain.ts';
import { EXIT } from '../domain/errors.ts';
import type { Context } from './context.ts';
import { sanitizeLine } from './sanitize.ts';
import { table } from './table.ts';

/** The properties as lines, one a property; what is not of the unit goes to stderr. */
export function dryRunLines({ unit }: DryRun): string[] {
  return table([
    ['Unit', unit.name],
    ...unit.properties.map(({ name, value }) => [name, sanitizeLine(value)]),
  ]);
}

function fate({ workUnit, created, waiting, supersedes }: DryRun): string {
  const { handle, status } = workUnit;
  const past = `this idempotency key stands for ${handle}, which is ${status}: nothing would be started`;
  const now = waiting ? `${handle} would wait: ${waiting.reason}` : `${handle} would start at once`;
  const instead = supersedes.length === 0 ? '' : `; it would cancel ${supersedes.join(', ')}`;
  return `Dry run, nothing is stored: ${created ? now : past}${instead}.`;
}

export async function dryRun(
  { client, stdout, stderr }: Context,
  request: StartWorkUnitInput,
  json: boolean,
): Promise<number> {
  const answer = await client.dryRun(request);
  if (json) await stdout.json(answer);
  else {
    await stderr.line(sanitizeLine(fate(answer)));
    for (const line of dryRunLines(answer)) await stdout.line(line);
  }
  return EXIT.ok;
}
