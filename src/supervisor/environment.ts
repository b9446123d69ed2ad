/** The variables that a request gives to what it runs, as they are when an attempt is prepared. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { parseEnvironmentFile } from '../domain/environment-file.ts';
import type { WorkUnitRow } from '../store/work-units.ts';

type Variables = Readonly<Record<string, string>>;

/** A file of variables is a page or two; what is larger is something else. */
const FILE_MAX = 1024 * 1024;

/**
 * Files in their order, then what the request names itself; the later wins.
 * @throws Error naming the file, and the line where one is malformed. It carries no system
 * call, since another start would find the same.
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
  let text: string;
  try {
    text = await readText(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (isOptional && code === 'ENOENT') return {};
    throw new Error(`The file of variables ${file} cannot be read: ${code ?? message}`);
  }
  const read = parseEnvironmentFile(text);
  if ('values' in read) return read.values;
  throw new Error(
    `The file of variables ${file} is malformed in line ${read.line}: ${read.problem}`,
  );
}

/** Never waits: what is no regular file, a FIFO say, is not read. */
async function readText(file: string): Promise<string> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const { size } = await handle.stat().then((facts) => {
      if (facts.isFile()) return facts;
      throw new Error('it is not a file');
    });
    if (size > FILE_MAX) throw new Error('it is larger than 1 MiB');
    return new TextDecoder('utf-8', { fatal: true }).decode(await handle.readFile());
  } catch (error) {
    if (error instanceof TypeError) throw new Error('it is not UTF-8 text');
    throw error;
  } finally {
    await handle.close();
  }
}
