/** The unit files themselves: what systemd makes of them, and what they do to a daemon in trouble. */
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sliceName } from '../../src/domain/names.ts';
import { SHUTDOWN_MARGIN_MS, stopDeadlineMs } from '../../src/domain/shutdown.ts';
import {
  apiSocket,
  dropIn,
  freePort,
  httpSocket,
  install,
  property,
  service,
  takenUpAgain,
  UNITS,
  uninstall,
} from '../support/installed.ts';
import { Rig, systemctl, within } from '../support/rig.ts';

const run = promisify(execFile);

let rig: Rig;
beforeAll(async () => {
  rig = await Rig.create();
  await install(rig, '--port', String(await freePort()));
});
afterAll(async () => {
  await uninstall(rig);
  await rig.end();
  rmSync(path.join(UNITS, `${service(rig)}.d`), { recursive: true, force: true });
});

/** Microseconds as `systemctl show` of 252 prints them: `1min 30s`, `90s`, `infinity`. */
function seconds(text: string): number {
  const units = { h: 3600, min: 60, s: 1, ms: 0.001 } as const;
  const parts = [...text.matchAll(/(\d+)(h|min|ms|s)/g)];
  return parts.reduce((sum, [, n, unit]) => sum + Number(n) * units[unit as keyof typeof units], 0);
}

describe('the units', () => {
  it('are clean for systemd-analyze verify', async () => {
    const units = [service(rig), apiSocket(rig), httpSocket(rig), sliceName(rig.workspace)];
    const { stdout, stderr } = await run('systemd-analyze', [
      '--user',
      '--man=no',
      'verify',
      'outlive.slice',
      'outlive-driver@nightly.service',
      'outlive-driver@nightly.timer',
      ...units,
    ]);
    expect(stdout + stderr).toBe('');
  });

  it('row 210: give a stopping daemon more time than its own grace of 60 s, and a margin', async () => {
    const ends = stopDeadlineMs(rig.config.shutdown.graceMs) / 1_000;
    expect(rig.config.shutdown.graceMs).toBe(60_000);
    expect(ends).toBeGreaterThan(60 + SHUTDOWN_MARGIN_MS / 1_000);
    expect(seconds(await property(service(rig), 'TimeoutStopUSec'))).toBeGreaterThanOrEqual(ends);
  });

  it('restart a daemon for ever, but not one with a bad configuration', async () => {
    const values = ['Restart', 'StartLimitIntervalUSec', 'RestartPreventExitStatus', 'KillMode'];
    const found = await Promise.all(values.map((name) => property(service(rig), name)));
    expect(found).toEqual(['always', '0', '2', 'control-group']);
  });

  it('put attempts into a slice that leaves the machine usable, and the daemon beside it', async () => {
    const { id } = await rig.submit({ handle: 'sliced', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const slice = sliceName(rig.workspace);
    const attempt = `outlive-${rig.workspace}-sliced-1.service`;
    const inSlice = `/outlive.slice/outlive-attempts.slice/${slice}/`;
    expect(await property(attempt, 'ControlGroup')).toContain(inSlice);
    expect(await property(service(rig), 'ControlGroup')).not.toContain('outlive.slice');
    for (const unit of [slice, 'outlive.slice']) {
      expect(Number(await property(unit, 'CPUWeight'))).toBeLessThan(100);
      expect(Number(await property(unit, 'IOWeight'))).toBeLessThan(100);
      expect(await property(unit, 'MemoryHigh')).toMatch(/^\d+$/);
      expect(await property(unit, 'TasksMax')).toMatch(/^\d+$/);
    }
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
  });

  it('harden the daemon, and nothing of it reaches an attempt', async () => {
    const status = (pid: string): string => readFileSync(`/proc/${pid}/status`, 'utf8');
    expect(status(await property(service(rig), 'MainPID'))).toMatch(
      /NoNewPrivs:\s1\n[\s\S]*Seccomp:\s2/,
    );
    const { id } = await rig.submit({ handle: 'free', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const pid = await property(`outlive-${rig.workspace}-free-1.service`, 'MainPID');
    expect(status(pid)).toMatch(/NoNewPrivs:\s0\n[\s\S]*Seccomp:\s0/);
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
  });
});

describe('the watchdog', () => {
  const DEADLINE_S = 3;

  it('leaves a daemon that works alone, and kills one that hangs; attempts run on', async () => {
    await dropIn(service(rig), `[Service]\nWatchdogSec=${DEADLINE_S}\n`);
    await systemctl('restart', service(rig));
    const { id } = await rig.submit({ handle: 'watched', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const pid = await property(service(rig), 'MainPID');
    await pause(DEADLINE_S * 2_500); // Time is what is tested here: two deadlines and a half.
    expect(await property(service(rig), 'MainPID')).toBe(pid);
    expect(await property(service(rig), 'StatusText')).toBe(
      `workspace ${rig.workspace}, 1 running`,
    );
    process.kill(Number(pid), 'SIGSTOP');
    await expect
      .poll(() => property(service(rig), 'MainPID'), { timeout: 30_000, interval: 200 })
      .not.toMatch(new RegExp(`^(0|${pid})$`));
    const log = await run('journalctl', ['--user', '-u', service(rig), '-o', 'cat', '-n', '200']);
    expect(log.stdout).toContain('Watchdog timeout');
    expect((await rig.client.runtime()).status).toBe('ready'); // Through the socket, whenever it is up.
    await takenUpAgain(rig, id);
    await rig.client.cancelWorkUnit(id);
    await rig.outcome(id);
  });

  it('does not kill a daemon whose bus is away: its status says degraded', async () => {
    const wire = path.join(rig.base, 'bus.sock');
    const bus = rig.config.busAddress.replace(/^unix:path=/, '').replace(/,.*/, '');
    const open = new Set<net.Socket>();
    const server = net.createServer((client) => {
      const there = net.createConnection(bus);
      for (const [from, to] of [
        [client, there],
        [there, client],
      ] as const) {
        open.add(from);
        from.on('data', (chunk) => to.write(chunk)).on('error', () => {});
        from.on('close', () => to.destroy());
      }
    });
    await new Promise<void>((resolve) => server.listen(wire, resolve));
    await dropIn(
      service(rig),
      `[Service]\nWatchdogSec=${DEADLINE_S}\nEnvironment=DBUS_SESSION_BUS_ADDRESS=unix:path=${wire}\n`,
    );
    await systemctl('restart', service(rig));
    const pid = await property(service(rig), 'MainPID');
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of open) socket.destroy();
    await within('the wire to be cut', closed);
    await expect
      .poll(() => property(service(rig), 'StatusText'), { timeout: 20_000 })
      .toMatch(/^degraded: bus_unavailable/);
    await pause(DEADLINE_S * 2_500); // Time is what is tested here, too.
    expect(await property(service(rig), 'MainPID')).toBe(pid);
    expect(await property(service(rig), 'ActiveState')).toBe('active');
  });
});

describe('a stop that suspends', () => {
  const GRACE_S = 7;

  it('has all of a grace that is longer than TimeoutStopSec, and than the watchdog waits', async () => {
    await dropIn(
      service(rig),
      `[Service]\nTimeoutStopSec=5\nWatchdogSec=5\nEnvironment=OUTLIVE_SHUTDOWN=suspend SHUTDOWN_GRACE_MS=${GRACE_S * 1_000}\n`,
    );
    await systemctl('restart', service(rig));
    const { id } = await rig.submit({ handle: 'patient', argv: ['sleep', '600'] });
    await rig.waitForEvent(id, ({ type }) => type === 'started', 'its start');
    const began = performance.now();
    await systemctl('stop', service(rig));
    expect(performance.now() - began).toBeGreaterThan(GRACE_S * 1_000);
    expect(await property(service(rig), 'Result')).toBe('success');
    await dropIn(service(rig), '[Service]\n');
    const { workUnit } = await rig.outcome(id);
    expect(workUnit.attempts[0]?.errorCode).toBe('suspended');
  });
});
