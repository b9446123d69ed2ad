/** How tests outside a private host (ops/scripts/host) do in it what only root can. */
import { readFileSync } from 'node:fs';
import path from 'node:path';

/** Where ops/scripts/host keeps what it knows of its hosts (ops/scripts/lib/host-registry.sh). */
export const HOST_REGISTRY = '/run/outlive-hosts';

/** Arguments of nsenter that run `command` as root in the host `name`, which is up. */
export function rootEntry(name: string, command: readonly string[]): string[] {
  const init = readFileSync(path.join(HOST_REGISTRY, name, 'init'), 'utf8').split(' ')[0] ?? '';
  const namespaces = ['--mount', '--pid', '--cgroup', '--ipc', '--uts', '--root', '--wd'];
  return ['--target', init, ...namespaces, ...command];
}
