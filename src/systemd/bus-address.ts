/** Which socket a D-Bus address means. */
import { OutliveError } from '../domain/errors.ts';

function percentDecoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

function socketOf(address: string): string | null {
  const match = /^unix:(.*)$/.exec(address.trim());
  if (!match) return null;
  for (const pair of (match[1] ?? '').split(',')) {
    const [key, ...rest] = pair.split('=');
    const value = percentDecoded(rest.join('='));
    if (key === 'path' && value !== '') return value;
    if (key === 'abstract' && value !== '') return `\0${value}`;
  }
  return null;
}

/**
 * The socket path of the first unix entry of a D-Bus address list
 * (`unix:path=/run/user/1000/bus,guid=…;…`); an abstract one begins with NUL.
 * @throws OutliveError `no_user_manager` when the list holds none that can be used.
 */
export function busSocket(addresses: string): string {
  for (const address of addresses.split(';')) {
    const socket = socketOf(address);
    // dbus-next 0.10 splits its address at these and cannot be told a path that holds one.
    if (socket !== null && !/[,:;=]/.test(socket)) return socket;
  }
  throw new OutliveError(
    'no_user_manager',
    `"${addresses}" names no unix socket that can be used; expected unix:path=/run/user/UID/bus.`,
  );
}
