/** The sandbox between request and launch: refused where it is known not to be had, else decided at the start. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { LaunchFile } from '../../src/domain/attempt-files.ts';
import { startWorkUnitSchema } from '../../src/domain/request.ts';
import type { SandboxAbility, SandboxMode, SandboxSetting } from '../../src/domain/sandbox.ts';
import type { StartRequest } from '../../src/executor/port.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { launch } from '../../src/supervisor/launch.ts';
import { submit } from '../../src/supervisor/submit.ts';
import { cleanUp, open, temporaryDirectory } from '../store/rig.ts';
import { QueueRig } from '../support/core-queue.ts';

afterEach(cleanUp);

const UNIT = { inaccessible: ['/store'], readOnly: ['/decisions'] };
const NEST = { hidden: ['/state'], veiled: ['/keys'], readOnly: ['/config'] };
const WEAK: SandboxAbility = { unit: true, nest: false, why: 'no namespaces' };
const ALL: SandboxAbility = { unit: true, nest: true, why: null };

interface Asked {
  readonly setting?: SandboxSetting;
  readonly sandbox?: SandboxMode;
  readonly runner?: 'pi' | 'command';
  /** What the probe finds, and whether it has by the time of the submit. */
  readonly ability?: SandboxAbility;
  readonly known?: boolean;
}

function rigFor({ setting = 'auto', ability = ALL, known = true }: Asked) {
  const requests: StartRequest[] = [];
  const rig = new QueueRig(
    open(),
    {},
    {
      start: (request) => {
        requests.push(request);
        return Promise.resolve({ kind: 'absent', reason: 'a test' });
      },
    },
  );
  const base = temporaryDirectory();
  const place = (name: string): string => path.join(base, name);
  const settings = {
    ...rig.context.settings,
    attemptsDirectory: place('attempts'),
    sessionsDirectory: place('sessions'),
    runtimeDirectory: place('runtime'),
    sandbox: {
      setting,
      unit: UNIT,
      nest: NEST,
      now: () => (known ? ability : null),
      found: Promise.resolve(ability),
    },
  };
  const context: Context = { ...rig.context, settings };
  return { rig, context, requests };
}

function ask(context: Context, { sandbox, runner = 'command' }: Asked) {
  const input = startWorkUnitSchema.parse({
    ownerId: 'test',
    cwd: '/',
    ...(runner === 'pi'
      ? { runnerId: 'pi', prompt: 'p' }
      : { runnerId: 'command', argv: ['true'] }),
    ...(sandbox === undefined ? {} : { sandbox }),
  });
  return submit(context, input, { actor: 'user' }).workUnit;
}

/** What the executor and the wrapper are told. */
async function launched(asked: Asked) {
  const { rig, context, requests } = rigFor(asked);
  const { id } = ask(context, asked);
  const { claim } = rig.claimOnce();
  if (!claim) throw new Error('it was not claimed');
  await launch(context, claim);
  const directory = requests[0]?.attemptDirectory;
  const file = directory && readFileSync(path.join(directory, 'launch.json'), 'utf8');
  const launchFile = file ? (JSON.parse(file) as LaunchFile) : null;
  const attempt = rig.store.attempts.get(claim.attempt.id);
  return { id, unit: requests[0]?.sandbox, spec: launchFile?.sandbox, attempt, requests };
}

describe('a launch', () => {
  it('of Pi gets all there is, in the unit and in launch.json', async () => {
    const { unit, spec } = await launched({ runner: 'pi' });
    expect(unit).toEqual(UNIT);
    expect(spec).toEqual({ mode: 'nest', demanded: false, weaker: null, ...NEST });
  });

  it('of Pi where there is less gets that, with the reason', async () => {
    const { unit, spec } = await launched({ runner: 'pi', ability: WEAK });
    expect(unit).toEqual(UNIT);
    expect(spec).toMatchObject({ mode: 'unit', demanded: false, weaker: 'no namespaces' });
  });

  it('of a command gets none by itself, and what is asked for', async () => {
    expect(await launched({})).toMatchObject({ unit: undefined, spec: { mode: 'off' } });
    expect(await launched({ sandbox: 'nest' })).toMatchObject({
      unit: UNIT,
      spec: { mode: 'nest', demanded: true },
    });
    expect(await launched({ setting: 'unit' })).toMatchObject({
      unit: UNIT,
      spec: { mode: 'unit', demanded: true },
    });
  });

  it('that cannot have what was asked for is never sent, and fails typed', async () => {
    const asked = { sandbox: 'nest', ability: WEAK, known: false } as const;
    const { requests, attempt } = await launched(asked);
    expect(requests).toEqual([]);
    expect(attempt?.intent).toMatchObject({
      code: 'sandbox_unavailable',
      reason: expect.stringContaining('no namespaces'),
    });
  });
});

describe('a submit', () => {
  it.each([
    ['by name', { sandbox: 'nest' }],
    ['by the setting', { setting: 'nest' }],
    ['by the setting, for Pi', { setting: 'nest', runner: 'pi' }],
  ] as const)('of what cannot be had, asked for %s, is refused', (_how, asked) => {
    const { context } = rigFor({ ...asked, ability: WEAK });
    expect(() => ask(context, asked)).toThrow(
      expect.objectContaining({
        code: 'sandbox_unavailable',
        message: expect.stringContaining('no namespaces'),
        fields: [{ path: '/sandbox', message: 'no namespaces' }],
      }),
    );
  });

  it('of less, or of nothing in particular, is taken', () => {
    const { context } = rigFor({ setting: 'nest', ability: WEAK });
    expect(ask(context, { sandbox: 'off' }).status).toBe('queued');
    expect(ask(context, { sandbox: 'unit' }).status).toBe('queued');
    const auto = rigFor({ ability: WEAK });
    expect(ask(auto.context, { runner: 'pi' }).status).toBe('queued');
  });
});
