/** What outlive stands on, as doctor sees it in a real host. */
import { describe, expect, it } from 'vitest';
import { asRoot, hostName, needsRoot, ok, root } from './support.ts';

interface Finding {
  readonly check: string;
  readonly verdict: string;
  readonly found: string;
  readonly advice: string | null;
}

const ENVIRONMENT =
  'export PATH=/opt/outlive/node_modules/.bin:/opt/outlive/ops/scripts:$PATH OUTLIVE_PORT=none NO_COLOR=1';

/** What `outlive doctor --json` found, and how it ended. */
async function doctor(name: string): Promise<{ status: string; findings: readonly Finding[] }> {
  const script = `${ENVIRONMENT}; status=0; outlive doctor --json || status=$?; echo "$status"`;
  const [json = '', status = ''] = (await ok('exec', name, '--', 'sh', '-ec', script))
    .trim()
    .split('\n');
  return { status, ...(JSON.parse(json) as { findings: readonly Finding[] }) };
}

describe.skipIf(!root)(`outlive doctor${needsRoot}`, () => {
  it('knows whether lingering is on, without which user units end at logout; row X28', async () => {
    const name = hostName();
    await ok('up', name);
    const healthy = await doctor(name);
    expect(healthy.findings).toMatchObject([
      { check: 'user manager', verdict: 'ok' },
      { check: 'lingering', verdict: 'ok', advice: null },
      { check: 'sandbox', verdict: 'ok', found: expect.stringContaining('in a unit') },
      { check: 'daemon', verdict: 'note', advice: expect.stringContaining('daemon start') },
    ]);
    expect(healthy.status).toBe('0');

    await asRoot(name, 'loginctl', 'disable-linger', '1000');
    const unwell = await doctor(name);
    const lingering = unwell.findings.find(({ check }) => check === 'lingering');
    expect(lingering).toMatchObject({
      verdict: 'problem',
      advice: expect.stringContaining('loginctl enable-linger'),
    });
    expect(unwell.status).toBe('1');
  });
});
