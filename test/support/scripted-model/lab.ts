/** Points an isolated Pi agent directory at a scripted model, through Pi's ordinary custom-provider configuration. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** What writePiLab takes. */
export interface PiLabOptions {
  /** `ScriptedModel.baseUrl`. */
  readonly baseUrl: string;
  /** As in Pi's models.json: a literal, `$VAR` or `!command`; by default a literal that any keyless model takes. */
  readonly apiKey?: string;
  /** Pi's own retries: `off` (the default), `fast` (3, from 20 ms on) or Pi's `default` (3, from 2 s on). */
  readonly retries?: 'off' | 'fast' | 'default';
  /** More of Pi's settings.json, over the lab's own. */
  readonly settings?: Readonly<Record<string, unknown>>;
}

/** What the lab's model costs, USD per million tokens. */
export const LAB_COST = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 } as const;

/** Writes models.json and settings.json into a PI_CODING_AGENT_DIR; the model is `lab/scripted`. */
export async function writePiLab(agentDir: string, options: PiLabOptions): Promise<void> {
  await mkdir(agentDir, { recursive: true, mode: 0o700 });
  await writeJson(join(agentDir, 'models.json'), modelsJson(options));
  await writeJson(join(agentDir, 'settings.json'), {
    ...settingsJson(options.retries ?? 'off'),
    ...options.settings,
  });
}

function modelsJson({ baseUrl, apiKey = 'scripted' }: PiLabOptions): unknown {
  const scripted = {
    id: 'scripted',
    name: 'Scripted model (stand-in)',
    input: ['text'],
    cost: LAB_COST,
    contextWindow: 128_000,
    maxTokens: 4096,
  };
  // The session header lets the server tell two conversations with the same words apart.
  const compat = { sendSessionAffinityHeaders: true, sessionAffinityFormat: 'openai-nosession' };
  return {
    providers: { lab: { baseUrl, api: 'openai-completions', apiKey, compat, models: [scripted] } },
  };
}

function settingsJson(retries: 'off' | 'fast' | 'default'): Record<string, unknown> {
  return {
    defaultProvider: 'lab',
    defaultModel: 'scripted',
    defaultThinkingLevel: 'off',
    cacheWarming: 'off',
    enableInstallTelemetry: false,
    retry: { enabled: retries !== 'off', ...(retries === 'fast' && { baseDelayMs: 20 }) },
  };
}

async function writeJson(path: string, value: unknown): Promise<void> {
  await writeFile(path, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
}
