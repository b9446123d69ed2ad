/** The watch of one attempt against an executor that says what the test wants. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { OutliveError } from '../../src/domain/errors.ts';
import type { ManagerInstance } from '../../src/domain/evidence.ts';
import type { Executor, UnitFacts } from '../../src/executor/port.ts';
import { attemptPaths } from '../../src/supervisor/attempt-directory.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { cancel } from '../../src/supervisor/end.ts';
import { retry } from '../../src/supervisor/retry.ts';
import { type AttemptWatch, watchAttempt } from '../../src/supervisor/watch.ts';
import { OPENED } from '../property/evidence.ts';
import { cleanUp, open, temporaryDirectory } from '../store/rig.ts';
import { QueueRig } from '../support/core-queue.ts';

const request = { actor: 'user', reason: null } as const;
const HELD: Partial<UnitFacts> = { state: 'inactive', jobPending: true, everRan: false };
const NEVER_RAN: Partial<UnitFacts> = { state: 'inactive', jobPending: false, everRan: false };
const ACTIVE: Partial<UnitFacts> = { state: 'active', jobPending: false, everRan: true };

/** A claimed attempt, its files, and an executor whose unit is as it is told. */
class Watched {
  readonly rig = new QueueRig(open());
  readonly context: Context;
  readonly id: string;
  readonly called: string[] = [];
  /** What a read shows; null for nothing loaded, an error for a bus that is away. */
  unit: Partial<UnitFacts> | null | Error = HELD;
  /** The user manager of now. */
  manager: ManagerInstance | null = null;
  onStop: () => void = () => undefined;
  onRead: () => void = () => undefined;
  watch: AttemptWatch | null = null;
  readonly #listeners = new Set<(unit: string | null) => void>();

  constructor() {
    const base = temporaryDirectory();
    const directory = (name: string): string => {
      const made = path.join(base, name);
      mkdirSync(made);
      return made;
    };
    const settings = {
      ...this.rig.context.settings,
      attemptsDirectory: directory('attempts'),
      exitsDirectory: directory('exits'),
      temporaryDirectory: directory('tmp'),
      runtimeDirectory: directory('runtime'),
    };
    this.context = { ...this.rig.context, settings, executor: this.#executor() };
    this.id = this.rig.submit();
    this.rig.claimAll();
    mkdirSync(this.paths.directory, { recursive: true });
    mkdirSync(this.paths.runtime, { recursive: true });
  }

  get attempt() {
    const [attempt] = this.rig.store.attempts.listByWorkUnit(this.id);
    if (!attempt) throw new Error('it was not claimed');
    return attempt;
  }

  get paths() {
    return attemptPaths(this.context.settings, this.attempt);
  }

  get status(): string | undefined {
    return this.rig.store.workUnits.get(this.id)?.status;
  }

  get claim(): string | null {
    if (!existsSync(this.paths.claim)) return null;
    return (JSON.parse(readFileSync(this.paths.claim, 'utf8')) as { by: string }).by;
  }

  /** The unit becomes another, and systemd says so. */
  becomes(unit: Partial<UnitFacts> | null | Error): void {
    this.unit = unit;
    this.hint(this.attempt.unit);
  }

  hint(unit: string | null): void {
    for (const listener of this.#listeners) listener(unit);
  }

  begin(): AttemptWatch {
    this.watch = watchAttempt(this.context, this.attempt, {
      reattach: false,
      onAttached: () => undefined,
      onEnded: () => undefined,
    });
    return this.watch;
  }

  count(method: string): number {
    return this.called.filter((name) => name === method).length;
  }

  /** Resolves once the watch has read the unit. */
  async wasRead(): Promise<void> {
    await vi.waitUntil(() => this.count('read') > 0, { timeout: 10_000, interval: 5 });
  }

  #executor(): Executor {
    const { called } = this;
    const note = (name: string) => async (): Promise<void> => {
      called.push(name);
    };
    return {
      ...this.rig.context.executor,
      host: () =>
        Promise.resolve({ bootId: 'boot', manager: this.manager, managerState: 'running' }),
      hold: () => Promise.resolve(true),
      release: note('release'),
      kill: note('kill'),
      waitEmpty: () => Promise.resolve(true),
      read: async () => {
        called.push('read');
        this.onRead();
        if (this.unit instanceof Error) throw this.unit;
        return this.unit && this.#facts(this.unit);
      },
      stop: async () => {
        called.push('stop');
        if (this.unit instanceof Error) throw this.unit;
        this.onStop();
      },
      onHint: (listener) => {
        this.#listeners.add(listener);
        return () => this.#listeners.delete(listener);
      },
    };
  }

  #facts(known: Partial<UnitFacts>): UnitFacts {
    return {
      unit: this.attempt.unit,
      nonce: this.attempt.nonce,
      state: 'active',
      jobPending: false,
      everRan: true,
      frozen: false,
      invocationId: null,
      controlGroup: null,
      mainPid: null,
      result: 'success',
      exit: { how: 'unknown', status: null, signal: null, elapsedMs: null },
      leavesExitRecord: true,
      ...known,
    };
  }
}

let watched: Watched;
beforeEach(() => {
  watched = new Watched();
});
afterEach(async () => {
  watched.watch?.stop();
  await watched.watch?.ended;
  await cleanUp();
});

describe('a unit whose start job is queued', () => {
  it('is neither dead nor running: nothing is claimed, committed or stopped', async () => {
    const watch = watched.begin();
    await watch.look(5_000);
    expect([watched.status, watched.claim]).toEqual(['claimed', null]);
    expect(watched.count('stop')).toBe(0);
    watched.becomes(ACTIVE);
    await vi.waitUntil(() => watched.status === 'running');
  });

  it('is stopped by a cancellation, and then nothing of it can run', async () => {
    const watch = watched.begin();
    await watch.look(5_000);
    watched.onStop = () => watched.becomes(NEVER_RAN);
    cancel(watched.context, watched.id, request);
    watch.hint();
    await watch.ended;
    expect([watched.status, watched.claim]).toEqual(['cancelled', 'revoked']);
  });

  it('is taken back after ten minutes, and its work is queued again with the reason', async () => {
    const watch = watched.begin();
    await watch.look(5_000);
    watched.onStop = () => watched.becomes(NEVER_RAN);
    watched.rig.entropy.advance(599_000);
    await watch.look(5_000);
    expect(watched.count('stop')).toBe(0);
    watched.rig.entropy.advance(1_000);
    watch.hint();
    await watch.ended;
    expect(watched.status).toBe('queued');
    expect(watched.attempt.errorMessage).toMatch(/held its start back for 600 s/);
  });

  it('proves nothing to a retry of stale work either; row 105, row 254', async () => {
    watched.rig.run(watched.id);
    watched.rig.makeStale(watched.id);
    await expect(retry(watched.context, watched.id, 'user')).rejects.toMatchObject({
      code: 'stale_unproved',
    });
    expect(watched.claim).toBeNull();
  });
});

describe('a dead unit whose wrapper was not heard of', () => {
  it('loses its claim before anything is concluded', async () => {
    watched.unit = NEVER_RAN;
    await watched.begin().ended;
    expect([watched.status, watched.claim]).toEqual(['queued', 'revoked']);
    expect(watched.count('release')).toBe(1);
  });

  it('is looked at once more when the wrapper was faster, and followed when it lives', async () => {
    watched.unit = NEVER_RAN;
    writeFileSync(watched.paths.claim, JSON.stringify({ by: 'wrapper' }));
    watched.onRead = () => {
      if (watched.count('read') === 2) watched.unit = ACTIVE;
    };
    watched.begin();
    await vi.waitUntil(() => watched.status === 'running');
    expect(watched.claim).toBe('wrapper');
  });

  it('loses its claim before a retry of stale work starts another attempt', async () => {
    watched.rig.run(watched.id);
    watched.rig.makeStale(watched.id);
    watched.unit = NEVER_RAN;
    expect(await retry(watched.context, watched.id, 'user')).toMatchObject({ status: 'queued' });
    expect(watched.claim).toBe('revoked');
  });
});

describe('an exit record that cannot be read', () => {
  const diagnostics = (): string[] =>
    watched.rig.store.events
      .page(watched.id, 0, 100)
      .map(({ type }) => type)
      .filter((type) => type === 'diagnostic.exit_record_unusable');

  it('because it is a directory is none: told once, and the rest of the evidence decides', async () => {
    mkdirSync(watched.paths.exitRecord);
    watched.unit = null;
    await watched.begin().ended;
    expect(watched.attempt).toMatchObject({ errorCode: 'never_started', exit: null });
    expect(diagnostics()).toHaveLength(1);
  });
});

describe('what ran under another manager, and no daemon saw', () => {
  it.each([
    ['is lost with it', 1_001, 'runtime_interrupted_no_checkpoint'],
    ['unless that manager is the one of now', 999, 'stopped_externally'],
  ])('%s', async (_, managerSeconds, code) => {
    const { attempt } = watched;
    const opened = { ...OPENED, bootId: 'boot', uptimeSeconds: 1_000 };
    watched.rig.store.attempts.patch(attempt.id, { opened, toldToStop: true });
    writeFileSync(watched.paths.claim, JSON.stringify({ by: 'wrapper' }));
    watched.unit = null;
    watched.manager = { pid: 1, startTicks: managerSeconds * 100 };
    await watched.begin().ended;
    expect(watched.rig.store.workUnits.get(watched.id)?.errorCode).toBe(code);
  });
});

describe('a manager that cannot be asked', () => {
  const away = new OutliveError('bus_unavailable', 'The user manager did not answer.');

  it('is not asked again because of what the asking itself made it say', async () => {
    watched.unit = away;
    watched.onRead = () => {
      if (watched.count('read') < 100) watched.hint(watched.attempt.unit);
    };
    watched.begin();
    await watched.wasRead();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(watched.count('read')).toBe(1);
  });

  it('is asked again at once when it is back', async () => {
    watched.unit = away;
    watched.begin();
    await watched.wasRead();
    watched.unit = ACTIVE;
    watched.hint(null);
    await vi.waitUntil(() => watched.count('read') > 1, { timeout: 900 });
    await vi.waitUntil(() => watched.status === 'running');
    expect(watched.count('read')).toBeLessThan(4);
  });

  it('costs no cancellation: the wrapper is told over its socket, its unit is stopped later', async () => {
    const told = Promise.withResolvers<unknown>();
    const server = net.createServer((socket) => {
      const hello = { v: 1, type: 'hello', nonce: watched.attempt.nonce };
      socket.write(`${JSON.stringify(hello)}\n`);
      socket.on('data', (text) => told.resolve(JSON.parse(String(text))));
    });
    await new Promise<void>((resolve) => server.listen(watched.paths.controlSocket, resolve));
    try {
      watched.unit = ACTIVE;
      const watch = watched.begin();
      await watch.look(5_000);
      await vi.waitUntil(() => server.listening && watched.status === 'running');
      watched.unit = away;
      cancel(watched.context, watched.id, request);
      // The greeting may still be on its way: whoever looks again tells again.
      const asking = setInterval(() => watch.hint(), 20);
      expect(await told.promise).toMatchObject({
        type: 'abort',
        reason: 'cancel',
        graceMs: 15_000,
      });
      clearInterval(asking);
      expect(watched.count('stop')).toBe(0);
      watched.unit = ACTIVE;
      watched.hint(null);
      await vi.waitUntil(() => watched.count('stop') === 1);
    } finally {
      server.close();
    }
  });

  it('when a stop is not accepted is asked for it again', async () => {
    watched.unit = ACTIVE;
    const watch = watched.begin();
    await watch.look(5_000);
    let refused = 0;
    watched.onStop = () => {
      if (refused++ === 0) throw away;
    };
    cancel(watched.context, watched.id, request);
    watch.hint();
    await vi.waitUntil(() => watched.count('stop') === 2);
    await watch.look(5_000);
    expect(watched.count('stop'), 'once it was accepted').toBe(2);
  });
});

describe('a cancelled unit that does not die', () => {
  it('is stale after grace and margin counted from the accepted stop, not from the order', async () => {
    watched.unit = ACTIVE;
    cancel(watched.context, watched.id, request);
    watched.rig.entropy.advance(3_600_000); // No daemon was there for an hour.
    const watch = watched.begin();
    await watch.look(5_000);
    expect([watched.count('stop'), watched.status]).toEqual([1, 'cancelling']);
    watched.rig.entropy.advance(15_000 + 5_000 + 1_999);
    await watch.look(5_000);
    expect(watched.status).toBe('cancelling');
    watched.rig.entropy.advance(1);
    await watch.look(5_000);
    expect([watched.count('stop'), watched.status]).toEqual([1, 'stale']);
  });
});
