/** Whether this machine lets an ordinary user make what a nest is made of. */
import { execFileSync } from 'node:child_process';

function canBeMade(): boolean {
  const argv = ['--user', '--map-root-user', '--mount', '--pid', '--fork', '--mount-proc', 'true'];
  try {
    execFileSync('unshare', argv, { stdio: 'ignore', timeout: 10_000 });
    return true;
  } catch {
    return false;
  }
}

export const namespaces = canBeMade();
/** For the name of what is skipped without. */
export const needsNamespaces = namespaces ? '' : ' (SKIPPED: needs unprivileged user namespaces)';
