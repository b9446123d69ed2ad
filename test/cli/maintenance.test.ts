/** gc, backup and restore as processes, against a daemon that answers by script. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { BackupView, CollectView } from '../../src/api/schemas-maintenance.ts';
import { openStore } from '../../src/store/store.ts';
import { aWorkUnit, FakeDaemon, type Handler, json, problem } from './fake-daemon.ts';
import { outlive } from './outlive.ts';

const open: FakeDaemon[] = [];
const directories: string[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((daemon) => daemon.dispose()));
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

async function serve(handler: Handler): Promise<FakeDaemon> {
  const daemon = await new FakeDaemon(handler).listen();
  open.push(daemon);
  return daemon;
}

function temporary(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'outlive-cli-'));
  directories.push(directory);
  return directory;
}

const REPORT: CollectView = {
  dryRun: false,
  cutoff: '2026-01-01T00:00:00.000Z',
  workUnits: { age: 3, budget: 1 },
  events: 1234,
  files: { files: 9, bytes: 2_621_440 },
  otherRows: 2,
  unclaimed: { found: 1, removed: 0, files: { files: 0, bytes: 0 }, paths: ['/state/x'] },
  usage: { fileBytes: 1024, storeBytes: 1024, budgetBytes: 1_048_576, excessBytes: 0 },
  problems: [],
};
const BACKUP: BackupView = {
  file: '/somewhere/copy.db',
  bytes: 4096,
  schemaVersion: 3,
  workspaceId: 'main',
  workUnits: 7,
  liveWorkUnits: 1,
  attempts: 8,
  events: 900,
  position: 901,
};

describe('help', () => {
  it.each([['gc'], ['backup'], ['restore']])('%s has one, with an example', async (command) => {
    const { code, stdout, stderr } = await outlive([command, '--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(`Usage: outlive ${command}`);
    expect(stdout).toMatch(new RegExp(`Example:\\n  outlive ${command}\\b`));
  });
});

describe('outlive gc', () => {
  it('sends what was asked and prints what went', async () => {
    const daemon = await serve((_, response) => json(response, 200, REPORT));
    const { runtimeDirectory } = daemon;
    const args = ['gc', '--dry-run', '--older-than', '7d'];
    const { code, stdout, stderr } = await outlive(args, { runtimeDirectory });
    expect(code).toBe(0);
    expect(daemon.requests[0]).toMatchObject({ method: 'POST' });
    expect(JSON.parse(daemon.requests[0]?.body ?? '')).toEqual({
      dryRun: true,
      olderThanMs: 7 * 86_400_000,
    });
    expect(stdout).toMatch(/work units, for their age +3\n/);
    expect(stdout).toMatch(/their files +9 \(2\.5 MiB\)\n/);
    expect(stdout).toMatch(/used now +2 KiB of 1 MiB\n/);
    expect(stderr).toContain('Would be removed:');
    expect(stderr).toContain('/state/x');
  });

  it('prints the report as it came with --json', async () => {
    const { runtimeDirectory } = await serve((_, response) => json(response, 200, REPORT));
    const { code, stdout } = await outlive(['gc', '--json'], { runtimeDirectory });
    expect([code, JSON.parse(stdout)]).toEqual([0, REPORT]);
  });

  it('exits with 1 when something could not be removed, and says what and how much is too much', async () => {
    const usage = { ...REPORT.usage, excessBytes: 3 * 1024 * 1024 };
    const report = { ...REPORT, usage, problems: ['/state/y: EACCES'] };
    const { runtimeDirectory } = await serve((_, response) => json(response, 200, report));
    const { code, stderr } = await outlive(['gc'], { runtimeDirectory });
    expect(code).toBe(1);
    expect(stderr).toContain('Could not be removed: /state/y: EACCES');
    expect(stderr).toContain('3 MiB above the disk budget');
  });

  it('exits with 5 while a run is under way', async () => {
    const { runtimeDirectory } = await serve((_, response) =>
      problem(response, 'maintenance_running', 'A run of retention is already under way.'),
    );
    const { code, stderr } = await outlive(['gc'], { runtimeDirectory });
    expect(code).toBe(5);
    expect(stderr).toContain('maintenance_running');
  });

  it.each(['7', '-1d', 'soon'])('--older-than %s exits with 2', async (age) => {
    expect((await outlive(['gc', `--older-than=${age}`])).code).toBe(2);
  });
});

describe('outlive backup', () => {
  it("completes the path from the caller's directory", async () => {
    const daemon = await serve((_, response) => json(response, 200, BACKUP));
    const { runtimeDirectory } = daemon;
    const args = ['backup', 'copies/x.db', '--force'];
    const { code, stdout, stderr } = await outlive(args, { runtimeDirectory, cwd: '/tmp' });
    expect(JSON.parse(daemon.requests[0]?.body ?? '')).toEqual({
      path: '/tmp/copies/x.db',
      force: true,
    });
    expect([code, stdout]).toEqual([0, '/somewhere/copy.db\n']);
    expect(stderr).toContain('7 work units (1 live), 8 attempts, 900 events, 4 KiB');
  });
});

describe('outlive restore', () => {
  it('needs no daemon: puts the copy in place and says what to do next', async () => {
    const place = temporary();
    const store = openStore(path.join(place, 'copy'), 'main', '2026-01-02T03:04:05.678Z');
    store.close();
    const env = { XDG_STATE_HOME: path.join(place, 'state') };
    const source = path.join(place, 'copy', 'outlive.db');
    const { code, stdout, stderr } = await outlive(['restore', source], { env });
    expect(stderr).toContain('Restored: 0 work units');
    expect(stderr).toContain('outlive daemon start; outlive resume');
    expect([code, stdout]).toEqual([
      0,
      `${path.join(place, 'state/outlive/main/store/outlive.db')}\n`,
    ]);
    const other = await outlive(['--workspace', 'lab', 'restore', source], { env });
    expect(other.code).toBe(1);
    expect(other.stderr).toContain('it is of workspace "main"');
  });

  it('refuses what is no copy, by its code', async () => {
    const place = temporary();
    writeFileSync(path.join(place, 'x'), 'precious');
    const env = { XDG_STATE_HOME: path.join(place, 'state') };
    const { code, stderr } = await outlive(['restore', path.join(place, 'x')], { env });
    expect(code).toBe(1);
    expect(stderr).toContain('backup_unusable');
  });
});

describe('events that retention removed', () => {
  const removed = (response: ServerResponse): void =>
    json(response, 410, {
      type: 'urn:outlive:error:control_plane_snapshot_required',
      title: 'gone',
      status: 410,
      code: 'control_plane_snapshot_required',
      detail: 'They were removed.',
      errors: [],
      extra: { first: 58, last: 57, afterSeq: 0 },
    });

  it('outlive events and logs tell so and print what is left', async () => {
    const { runtimeDirectory } = await serve(({ url }, response) => {
      if (!url.pathname.endsWith('/events')) return json(response, 200, aWorkUnit());
      if (url.searchParams.get('afterSeq') === '57')
        return json(response, 200, { items: [], nextCursor: null });
      return removed(response);
    });
    for (const command of ['events', 'logs']) {
      const { code, stderr } = await outlive([command, 'issue42'], { runtimeDirectory });
      expect([code, stderr]).toEqual([0, 'Its events up to 57 were removed by retention.\n']);
    }
    const asked = await outlive(['events', 'issue42', '--after', '3'], { runtimeDirectory });
    expect(asked.code).toBe(1);
    expect(asked.stderr).toContain('control_plane_snapshot_required');
  });

  it('outlive run with a key of long ago ends as that run ended', async () => {
    const { runtimeDirectory } = await serve(({ url }, response) => {
      const over = { ...aWorkUnit(), status: 'failed', errorCode: 'hard_timeout' };
      if (!url.pathname.endsWith('/events')) return json(response, 200, over);
      return removed(response);
    });
    const args = ['run', '--idempotency-key', 'k', '--', 'x'];
    const { code, stderr } = await outlive(args, { runtimeDirectory });
    expect(code).toBe(124);
    expect(stderr).toContain('its events were removed by retention');
  });
});
