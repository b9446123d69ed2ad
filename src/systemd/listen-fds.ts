/**
 * Sockets that systemd made and hands over at the start: sd_listen_fds(3).
 *
 * They stay systemd's. Closing one here ends nothing: whoever connects while no daemon runs
 * waits for the next one. Node marks inherited descriptors close-on-exec at its start, so
 * no child gets them.
 */

/** Descriptors by what is served on them: FileDescriptorName= of the socket units. */
export interface HandedOver {
  /** Unix sockets of the API. */
  readonly api: readonly number[];
  /** TCP sockets. */
  readonly http: readonly number[];
}

export const NOTHING_HANDED_OVER: HandedOver = { api: [], http: [] };

/** 0 to 2 are the standard streams. */
const FIRST = 3;
const VARIABLES = ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES'];

/**
 * Takes what was handed to this process and removes the variables, so that no child takes
 * it for its own. Nothing when they name another process, or none.
 * @param report told of a name that nobody serves: who connects there would wait for ever.
 */
export function takeListenFds(
  env: Record<string, string | undefined>,
  pid: number,
  report: (problem: string) => void,
): HandedOver {
  const [forPid, count, names] = VARIABLES.map((name) => env[name]);
  for (const name of VARIABLES) delete env[name];
  if (forPid !== String(pid) || !/^[1-9]\d{0,3}$/.test(count ?? '')) return NOTHING_HANDED_OVER;
  const handed = { api: [] as number[], http: [] as number[] };
  const named = (names ?? '').split(':');
  for (let index = 0; index < Number(count); index += 1) {
    const name = named[index] ?? '';
    if (name === 'api' || name === 'http') handed[name].push(FIRST + index);
    else report(`a socket named "${name}" was handed over; only api and http are served`);
  }
  return handed;
}
