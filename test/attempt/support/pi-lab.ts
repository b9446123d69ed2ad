/** An attempt that runs the real Pi CLI against the scripted model. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import type { KeyProxySpec } from '../../../src/domain/attempt-files.ts';
import { type PiLabOptions, writePiLab } from '../../support/scripted-model/lab.ts';
import { type ScriptedModel, startScriptedModel } from '../../support/scripted-model/server.ts';
import { type Lab, type LaunchChanges, makeLab } from './lab.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
export const PI_COMMAND = [
  process.execPath,
  path.join(ROOT, 'node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js'),
];

export interface PiLab {
  readonly lab: Lab;
  readonly model: ScriptedModel;
  readonly sessionFile: string;
  /** Messages of Pi's session file, in order. */
  messages(): Promise<readonly SessionMessage[]>;
  /** Points this lab's Pi at the model of another lab. */
  useModelOf(other: PiLab): Promise<void>;
}

export interface SessionMessage {
  readonly role: string;
  readonly stopReason?: string;
  readonly content: unknown;
}

export interface PiLabChanges {
  /** By default a new one. */
  readonly sessionFile?: string;
  /** Lines of the script that the model plays. */
  readonly script?: readonly string[];
  /** The prompt, without a script. */
  readonly prompt?: string;
  readonly model?: string | null;
  readonly continuation?: string;
  readonly command?: readonly string[];
  readonly launch?: LaunchChanges;
  readonly pi?: Partial<PiLabOptions>;
  /** Directory in which the lab is made. */
  readonly parent?: string;
  /** Key that the model's server demands. */
  readonly serverKey?: string;
  /** The wrapper keeps the key, which is in the credential LAB_KEY; Pi's own models.json leads nowhere. */
  readonly proxied?: Partial<KeyProxySpec> & { readonly key: string };
}

/** The environment of a wrapper whose credentials a lab holds. */
export const withCredentials = (lab: Lab): { CREDENTIALS_DIRECTORY: string } => ({
  CREDENTIALS_DIRECTORY: path.join(lab.root, 'credentials'),
});

const NOWHERE = 'http://127.0.0.1:9/v1';

/** Makes all of it; gone after the test. */
export async function makePiLab(changes: PiLabChanges = {}): Promise<PiLab> {
  const model = await startScriptedModel(
    changes.serverKey === undefined ? {} : { apiKey: changes.serverKey },
  );
  onTestFinished(() => model.close());
  const script = (changes.script ?? ['say done']).join('\n');
  const prompt = changes.prompt ?? `go\n#script\n${script}\n#end`;
  const lab = await makeLab(
    (root) => ({
      kind: 'pi',
      command: changes.command ?? PI_COMMAND,
      sessionFile: changes.sessionFile ?? path.join(root, 'session.jsonl'),
      prompt,
      continuation: changes.continuation ?? null,
      model: changes.model === undefined ? 'lab/scripted' : changes.model,
    }),
    { ...changes.launch, keyProxy: keyProxyOf(changes, model) },
    changes.parent,
  );
  if (changes.proxied !== undefined) await placeKey(lab, changes.proxied.key);
  // HOME is the lab's root: Pi's own default, no variable needed.
  const agent = path.join(lab.root, '.pi/agent');
  const pointAt = (baseUrl: string): Promise<void> => writePiLab(agent, { baseUrl, ...changes.pi });
  await pointAt(changes.proxied === undefined ? model.baseUrl : NOWHERE);
  const sessionFile = changes.sessionFile ?? path.join(lab.root, 'session.jsonl');
  return {
    lab,
    model,
    sessionFile,
    messages: () => readMessages(sessionFile),
    useModelOf: (other) => pointAt(other.model.baseUrl),
  };
}

function keyProxyOf({ proxied }: PiLabChanges, { baseUrl }: ScriptedModel): KeyProxySpec[] {
  if (proxied === undefined) return [];
  const { key: _key, ...changes } = proxied;
  const spec = { provider: 'lab', keyVariable: 'LAB_KEY', header: 'authorization' };
  return [{ ...spec, baseUrl, scheme: 'Bearer', ...changes }];
}

async function placeKey(lab: Lab, key: string): Promise<void> {
  const { CREDENTIALS_DIRECTORY: directory } = withCredentials(lab);
  await mkdir(directory, { mode: 0o500 });
  await writeFile(path.join(directory, 'LAB_KEY'), `${key}\n`, { mode: 0o400 });
}

/** Messages of a session file of Pi's, in order. */
export async function readMessages(file: string): Promise<readonly SessionMessage[]> {
  const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '');
  return lines
    .map((line): { type: string; message: SessionMessage } => JSON.parse(line))
    .filter((entry) => entry.type === 'message')
    .map((entry) => entry.message);
}
