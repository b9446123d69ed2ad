/** The variables that a request gives to what it runs, as they are when an attempt is prepared. */
import { readFile } from 'node:fs/promises';
import type { WorkUnitRow } from '../store/work-units.ts';

type Variables = Readonly<Record<string, string>>;

/**
 * Files in their order, then what the request names itself; the later wins.
 * @throws Error naming the file. It carries no system call, since another start would find the same.
 */
export async function givenEnvironment({ request }: WorkUnitRow): Promise<Variables> {
  let given: Variables = {};
  for (const file of request.environmentFiles ?? []) {
    given = { ...given, ...(await readVariables(file)) };
  }
  return { ...given, ...request.environment };
}

async function readVariables(asked: string): Promise<Variables> {
  const isOptional = asked.startsWith('-');
  const file = isOptional ? asked.slice(1) : asked;
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (isOptional && error.code === 'ENOENT') return '';
    throw new Error(`The file of variables ${file} cannot be read: ${error.code}`);
  });
  const lines = text.split('\n').filter((line) => /^[A-Za-z_]\w*=/.test(line));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
}
