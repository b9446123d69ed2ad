/** Artifacts in real units: of runs that end, are killed, and whose daemon dies at the end. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, watch, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { cli } from '../support/cli.ts';
import { appears, Rig, script, sequenceIsWhole, systemctl, within } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(async () => {
  await rig.end();
});

const created = (events: readonly EventView[]): unknown[] =>
  events.filter(({ type }) => type === 'artifact.created').map(({ data }) => data['kind']);

/** Names in the directory for temporary files; there is none before the first Pi run. */
const temporary = (): string[] => {
  const directory = rig.config.directories.temporary;
  return existsSync(directory) ? readdirSync(directory) : [];
};

/** Resolves once the directories of ended runs are gone, told by inotify. */
async function temporaryIsEmpty(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const look = (): void => {
    if (temporary().length === 0) resolve();
  };
  const watcher = watch(rig.config.directories.temporary, look);
  try {
    look();
    await within('the removal of temporary files', promise);
  } finally {
    watcher.close();
  }
}

function makeRepository(): void {
  const git = (...args: readonly string[]): void => {
    execFileSync('git', ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.org', ...args], {
      cwd: rig.tree,
    });
  };
  git('init', '-q');
  writeFileSync(path.join(rig.tree, 'tracked'), 'one\n');
  git('add', '-A');
  git('commit', '-q', '-m', 'before');
}

describe('row 165: a run', () => {
  it('of Pi leaves transcript and diff, readable after the daemon was replaced, and its TMPDIR goes', async () => {
    makeRepository();
    const daemon = await rig.startDaemon();
    const { workUnit, events } = await rig.runToEnd({
      prompt: script('bash echo two >> tracked; echo "in $TMPDIR"; seq 1 30000', 'say All done'),
    });
    expect(workUnit.status).toBe('succeeded');
    expect(created(events)).toEqual(['stdout', 'transcript', 'diff']);
    expect(sequenceIsWhole(events)).toBe(true);
    await temporaryIsEmpty();
    daemon.kill('SIGKILL');
    await daemon.exited;
    await rig.startDaemon();
    const transcript = await cli(rig, ['artifact', workUnit.handle, 'transcript']);
    expect(transcript.stdout).toContain('→ bash echo two >> tracked');
    expect(transcript.stdout).toContain('All done\n');
    const diff = await cli(rig, ['artifact', workUnit.handle, 'diff']);
    expect(diff.stdout).toContain(' one\n+two\n');
  });

  it('that is killed with everything of it leaves what it had said', async () => {
    await rig.startDaemon();
    const { id, handle } = await rig.submit({
      prompt: script('say I begin. ;; bash echo up; sleep 600'),
    });
    await rig.waitForEvent(
      id,
      (event) => event.type === 'tool.update' && String(event.data['delta']).includes('up'),
      'the tool to run',
    );
    expect(temporary()).toHaveLength(1);
    const { attempts } = await rig.client.getWorkUnit(id);
    await systemctl('kill', '--signal=KILL', attempts[0]?.unit ?? '');
    const { workUnit, events } = await rig.outcome(id);
    expect([workUnit.status, workUnit.errorCode]).toEqual(['failed', 'killed']);
    expect(created(events)).toContain('transcript');
    const { stdout } = await cli(rig, ['artifact', handle, 'transcript']);
    expect(stdout).toContain('I begin.\n\n→ bash echo up; sleep 600\n');
    await temporaryIsEmpty();
  });

  it.each(['evidence_read', 'concluded'] as const)(
    'whose daemon dies at %s has each of them once',
    async (fault) => {
      const daemon = await rig.startDaemon({ fault });
      const { id } = await rig.submit({ argv: ['sh', '-c', 'echo out; echo err >&2'] });
      expect(await daemon.exited).toBe('SIGKILL');
      await rig.startDaemon();
      const { workUnit, events } = await rig.outcome(id);
      expect(workUnit.status).toBe('succeeded');
      expect(created(events)).toEqual(['stdout', 'stderr']);
      const { items } = await rig.client.artifacts(id);
      expect(items.map(({ kind, bytes }) => [kind, bytes])).toEqual([
        ['stdout', 4],
        ['stderr', 4],
      ]);
      expect(sequenceIsWhole(events)).toBe(true);
    },
  );

  it('that ends while no daemon is there has them when the next one has looked', async () => {
    const daemon = await rig.startDaemon();
    const { id } = await rig.submit({
      argv: ['sh', '-c', 'echo up; until [ -e go ]; do sleep 0.1; done; echo down'],
    });
    const { data } = await rig.waitForEvent(id, ({ type }) => type === 'attempt.opened', 'it');
    daemon.kill('SIGKILL');
    await daemon.exited;
    writeFileSync(path.join(rig.tree, 'go'), '');
    await appears(path.join(rig.exitRecords(), `${String(data['nonce'])}.json`));
    await rig.startDaemon();
    const { events } = await rig.outcome(id);
    expect(created(events)).toEqual(['stdout']);
    const [stdout] = (await rig.client.artifacts(id)).items;
    const pieces: Buffer[] = [];
    for await (const piece of rig.client.artifactContent(stdout?.id ?? '')) pieces.push(piece);
    expect(Buffer.concat(pieces).toString()).toBe('up\ndown\n');
  });
});

describe('retention', () => {
  it('takes rows and files together; then there is nothing to list, and nothing to read', async () => {
    await rig.startDaemon();
    const { workUnit } = await rig.runToEnd({ argv: ['sh', '-c', 'echo out'] });
    const [stdout] = (await rig.client.artifacts(workUnit.id)).items;
    await rig.unitsAreGone();
    const collected = await cli(rig, ['gc', '--older-than', '0s']);
    expect(collected.status, collected.stderr).toBe(0);
    expect((await rig.client.artifacts(workUnit.id)).items).toEqual([]);
    await expect(rig.client.artifactContent(stdout?.id ?? '').next()).rejects.toMatchObject({
      code: 'not_found',
    });
  });
});
