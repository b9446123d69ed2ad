/** What a person reads on stderr when a command fails: what happened, what to do. */
import { unreachableReason } from '../client/transport.ts';
import { OutliveError } from '../domain/errors.ts';
import { workspaceFlag } from './context.ts';
import { sanitize } from './sanitize.ts';

/** The lines for an error. An error that is not ours is a mistake of outlive's and keeps its stack. */
export function errorText(error: unknown, workspace: string | null): string {
  if (!(error instanceof OutliveError)) {
    const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return sanitize(`outlive: This is a mistake in outlive, please report it.\n${stack}`);
  }
  const fields = error.fields
    .filter((field) => !error.message.includes(field.message))
    .map((field) => `  ${field.path}: ${field.message}`);
  // A usage error is for the person who typed it; any other has a code that scripts may look for.
  const said = error.code === 'usage' ? error.message : `${error.code}: ${error.message}`;
  const lines = [`outlive: ${said}`, ...fields, ...hint(error, workspace)];
  return sanitize(lines.join('\n'));
}

function hint(error: OutliveError, workspace: string | null): string[] {
  const flag = workspaceFlag(workspace);
  switch (unreachableReason(error)) {
    case null:
    case 'denied':
      return [];
    case 'absent':
      return [`Start it with: outlive daemon start${flag}`];
    default:
      return [
        `See why with: outlive daemon logs${flag}`,
        `Start it again with: outlive daemon restart${flag}`,
      ];
  }
}
