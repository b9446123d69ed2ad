/** Unit names and their object paths on the bus; each the inverse of the other. */
import { SYSTEMD } from './bus-names.ts';

const UNITS = `${SYSTEMD.path}/unit/`;

/** `a-1.service` becomes `…/unit/a_2d1_2eservice`: every byte but letters and digits is escaped. */
export function unitPath(name: string): string {
  const escaped = Array.from(Buffer.from(name, 'utf8'), (byte, index) => {
    const character = String.fromCharCode(byte);
    // A leading digit is escaped too (sd_bus_path_encode(3)).
    const plain = index === 0 ? /[A-Za-z]/ : /[A-Za-z0-9]/;
    return plain.test(character) ? character : `_${byte.toString(16).padStart(2, '0')}`;
  });
  return UNITS + escaped.join('');
}

/** The unit an object path stands for, null for any other object. */
export function unitOfPath(path: string): string | null {
  if (!path.startsWith(UNITS)) return null;
  const bytes: number[] = [];
  const label = path.slice(UNITS.length);
  for (const [part] of label.matchAll(/_[0-9a-f]{2}|[A-Za-z0-9]/g)) {
    bytes.push(part.length === 3 ? Number.parseInt(part.slice(1), 16) : part.charCodeAt(0));
  }
  return Buffer.from(bytes).toString('utf8');
}
