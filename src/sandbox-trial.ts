/** Finds out what of a sandbox this machine can give: by trying it, from the inside. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { SandboxAbility } from './domain/sandbox.ts';
import { SANDBOX_PROBE } from './layout.ts';

/**
 * Runs the probe and waits for its end: in a unit that hides `hidden`, or as a plain process.
 * @returns what went wrong with that; null when nothing did.
 */
export type ProbeRunner = (argv: readonly string[], hidden: string) => Promise<string | null>;

/** Makes `directory` anew for it, and removes it afterwards. Never rejects. */
export async function trySandbox(
  directory: string,
  kind: 'unit' | 'plain',
  run: ProbeRunner,
): Promise<SandboxAbility> {
  const none = (why: string): SandboxAbility => ({ unit: false, nest: false, why });
  try {
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { mode: 0o700 });
    for (const name of ['hidden', 'covered']) {
      mkdirSync(path.join(directory, name));
      writeFileSync(path.join(directory, name, 'secret'), 'secret\n');
    }
    const argv = [process.execPath, SANDBOX_PROBE, kind, directory];
    const problem = await run(argv, path.join(directory, 'hidden'));
    return readResult(directory) ?? none(problem ?? 'the probe said nothing');
  } catch (error) {
    return none((error as Error).message);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function readResult(directory: string): SandboxAbility | null {
  try {
    return JSON.parse(readFileSync(path.join(directory, 'result.json'), 'utf8')) as SandboxAbility;
  } catch {
    return null;
  }
}
