/** Plays one round in a host: once through, or over the power cut in its middle. */
import { appendFileSync, cpSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Host } from './host.ts';
import { doOutside, endsHost } from './outside-acts.ts';
import type { RoundRequest, RoundResult } from './protocol.ts';

/** Beyond everything a round waits for itself. */
const ROUND_MS = 240_000;

interface Played {
  readonly result: RoundResult | null;
  /** The host went down in the middle of it. */
  readonly cut: boolean;
  readonly said: string;
}

async function once(host: Host, mode: 'whole' | 'settle', request: RoundRequest): Promise<Played> {
  const child = host.exec(
    'node_modules/.bin/node',
    '--no-warnings',
    'test/chaos/inside.ts',
    mode,
    JSON.stringify(request),
  );
  const tooLong = setTimeout(() => child.kill('SIGKILL'), ROUND_MS);
  let result: RoundResult | null = null;
  let said = '';
  let cut: Promise<void> | null = null;
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  child.stdin?.on('error', () => undefined); // It may be gone when it is answered.
  const closed = new Promise<void>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', () => resolve());
  });
  if (!child.stdout) throw new Error('no pipe from the host');
  const acts: Promise<void>[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line.startsWith('@result ')) result = JSON.parse(line.slice('@result '.length));
    else if (line.startsWith('@outside ')) {
      const act = line.slice('@outside '.length);
      const done = doOutside(host, act).then(() => void child.stdin?.write('done\n'));
      done.catch(() => child.kill('SIGKILL'));
      acts.push(done);
      if (endsHost(act)) cut = done;
    } else said += `${line}\n`;
  });
  await closed.finally(() => clearTimeout(tooLong));
  await Promise.all(acts);
  return { result, cut: cut !== null, said };
}

const failure = (said: string): RoundResult => ({
  violations: [`the round ended without a result: ${said.slice(-2_000)}`],
  struck: [],
  missed: [],
  points: [],
});

/** Keeps what tells of a failed round in `logs`, and removes it from the host. */
function keepLogs(host: Host, request: RoundRequest, result: RoundResult, logs: string): void {
  const base = path.join(host.home, `chaos-${request.workspace}`);
  mkdirSync(logs, { recursive: true });
  if (existsSync(base))
    cpSync(base, logs, { recursive: true, filter: (file) => !file.endsWith('.sock') });
  appendFileSync(path.join(logs, 'violations'), `${result.violations.join('\n')}\n`);
  appendFileSync(path.join(logs, 'plan.json'), JSON.stringify(request.plan, null, 2));
}

/** Plays it; what failed leaves its files in `logs`. */
export async function playRound(
  host: Host,
  request: RoundRequest,
  logs: string,
): Promise<RoundResult> {
  await host.up();
  let played = await once(host, 'whole', request);
  if (played.cut && played.result === null) played = await once(host, 'settle', request);
  const result = played.result ?? failure(played.said);
  if (result.violations.length > 0) keepLogs(host, request, result, logs);
  rmSync(path.join(host.home, `chaos-${request.workspace}`), { recursive: true, force: true });
  return result;
}
