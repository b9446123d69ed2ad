/** Values from the bus, believed only after a look at their type. */
import { Variant } from 'dbus-next';

/** Properties of one interface of one object. */
export type PropertyMap = Readonly<Record<string, unknown>>;

/** What a Variant holds; anything else is itself. */
export function unwrap(value: unknown): unknown {
  return value instanceof Variant ? (value.value as unknown) : value;
}

/** An `a{sv}` without its Variants. */
export function propertyMap(value: unknown): PropertyMap {
  if (typeof value !== 'object' || value === null) return {};
  return Object.fromEntries(Object.entries(value).map(([name, held]) => [name, unwrap(held)]));
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Numbers of up to 32 bits come as number, of 64 bits as bigint. */
export function integer(value: unknown): bigint {
  if (typeof value === 'bigint') return value;
  return typeof value === 'number' && Number.isInteger(value) ? BigInt(value) : 0n;
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function texts(value: unknown): readonly string[] {
  return list(value).filter((item) => typeof item === 'string');
}

/** An `ay` in hex; dbus-next gives a Buffer. */
export function hex(value: unknown): string {
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : '';
}
