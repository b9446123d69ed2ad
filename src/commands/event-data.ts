/**
 * Reading an event's `data`. It is open-ended on the wire (a newer daemon may say
 * more), so each reader takes what it knows and treats the rest as absent.
 */
import type { EventView } from '../api/schemas.ts';

export const stringOf = (data: EventView['data'], key: string): string | null => {
  const value = data[key];
  return typeof value === 'string' ? value : null;
};

export const numberOf = (data: EventView['data'], key: string): number | null => {
  const value = data[key];
  return typeof value === 'number' ? value : null;
};

// The argument that says most about a call, in the order of preference.
const TELLING_ARGUMENTS = ['command', 'path', 'file_path', 'pattern', 'url', 'query'];

/** One line about a tool call: `bash: npm test`. Not yet sanitised. */
export function toolCallText(data: EventView['data']): string {
  const tool = stringOf(data, 'tool') ?? 'tool';
  const detail = argumentText(data['arguments']);
  return detail === '' ? tool : `${tool}: ${detail}`;
}

function argumentText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (typeof value !== 'object' || value === null) return '';
  const record = value as Record<string, unknown>;
  const telling = TELLING_ARGUMENTS.find((name) => typeof record[name] === 'string');
  if (telling !== undefined) return String(record[telling]);
  return Object.keys(record).length === 0 ? '' : JSON.stringify(record);
}
