/** What a work unit must hold to run, from its request. */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import type { StartWorkUnit } from '../domain/request.ts';
import type { LeaseRequest, Need } from '../domain/resources.ts';

/**
 * A path by which everybody who means the same directory names it: links resolved as
 * far as the path exists.
 */
function canonicalPath(given: string): string {
  const absolute = path.resolve(given);
  try {
    return realpathSync(absolute);
  } catch {
    const parent = path.dirname(absolute);
    return parent === absolute
      ? absolute
      : path.join(canonicalPath(parent), path.basename(absolute));
  }
}

const leaseNeed = ({ type, key }: LeaseRequest): Need => ({
  form: 'lease',
  type,
  key: type === 'bound_path' ? canonicalPath(key) : key,
});

/** The provider preset whose slots it takes; null for a command. */
export function providerOf(input: StartWorkUnit): string | null {
  if (input.providerPresetId !== undefined) return input.providerPresetId;
  if (input.runnerId !== 'pi') return null;
  return input.model?.split('/')[0] ?? 'default';
}

/** All needs, each once. */
export function needsOf(input: StartWorkUnit, cwd: string): readonly Need[] {
  const provider = providerOf(input);
  const exclusive = input.exclusive ?? input.runnerId === 'pi';
  const needs: Need[] = [
    { form: 'slot', type: 'runner', key: input.runnerId },
    ...(provider === null ? [] : [{ form: 'slot', type: 'provider', key: provider } as const]),
    ...(input.channelId === undefined
      ? []
      : [{ form: 'slot', type: 'channel_parallel', key: input.channelId } as const]),
    ...(exclusive ? [leaseNeed({ type: 'bound_path', key: cwd })] : []),
    ...(input.taskId === undefined ? [] : [leaseNeed({ type: 'task', key: input.taskId })]),
    ...(input.externalSubject === undefined
      ? []
      : [leaseNeed({ type: 'external_subject', key: input.externalSubject })]),
    // One writer of a conversation at a time.
    ...(input.runnerId === 'pi' && input.conversation !== undefined
      ? [leaseNeed({ type: 'external_workspace', key: `conversation ${input.conversation}` })]
      : []),
    ...input.leases.map(leaseNeed),
  ];
  const byName = new Map(needs.map((need) => [`${need.form} ${need.type} ${need.key}`, need]));
  return [...byName.values()];
}
