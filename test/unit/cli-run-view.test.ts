import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EventView } from '../../src/api/schemas.ts';
import { createClient } from '../../src/client/client.ts';
import type { Context } from '../../src/commands/context.ts';
import { Output } from '../../src/commands/output.ts';
import { createView } from '../../src/commands/run-view.ts';
import { loadConfig } from '../../src/config.ts';
import { anEvent, aWorkUnit } from '../cli/fake-daemon.ts';

const NO_COLOR: Record<string, string> = { NO_COLOR: '1' };

const asTerminal = (stream: Writable, isTTY: boolean): NodeJS.WriteStream =>
  Object.assign(stream, { isTTY, columns: 40 }) as unknown as NodeJS.WriteStream;

/** What a person sees: lines, of which the last one can be drawn over. */
class Screen {
  readonly lines: string[] = [''];

  feed(text: string): void {
    text.split('\n').forEach((line, index) => {
      if (index > 0) this.lines.push('');
      const [kept = '', ...drawn] = line.split('\r\u001b[2K');
      const last = this.lines.length - 1;
      this.lines[last] = drawn.at(-1) ?? `${this.lines[last]}${kept}`;
    });
  }
}

function terminal(screen: Screen, isTTY: boolean, env = NO_COLOR): Output {
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      screen.feed(chunk.toString());
      done();
    },
  });
  return new Output(asTerminal(stream, isTTY), { env, onBroken: () => {} });
}

function context(stdout: Output, stderr: Output): Context {
  const config = loadConfig({ HOME: '/nowhere', XDG_CONFIG_HOME: '/nowhere' });
  const client = createClient({ socketPath: '/nowhere/api.sock' });
  return { stdout, stderr, env: {}, config, client, entries: '/nowhere' };
}

const message = (seq: number, delta: string): EventView =>
  anEvent(seq, 'agent.message', { message: 1, block: 0, delta });

beforeEach(() => {
  vi.useFakeTimers({
    now: Date.parse('2026-11-29T20:00:01.000Z'),
    toFake: ['Date', 'setInterval', 'clearInterval'],
  });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('on a terminal', () => {
  it('draws one status line below what has been said, over and over', async () => {
    const screen = new Screen();
    const output = terminal(screen, true);
    const view = createView(context(output, output), aWorkUnit(), false);
    await view.event(anEvent(1, 'attempt.opened'));
    await view.event(message(2, 'Reading\nthe te'));
    expect(screen.lines).toEqual(['Reading', 'issue42 · 0s / 1h']);
    await view.event(anEvent(3, 'tool.start', { toolCallId: 'a', tool: 'bash' }));
    vi.advanceTimersByTime(5_000);
    await view.say('A sentence.');
    expect(screen.lines).toEqual([
      'Reading',
      'the te',
      '→ bash',
      'A sentence.',
      'issue42 · 5s / 1h · bash',
    ]);
    view.connection('away');
    await view.event(message(4, 'x'.repeat(60)));
    expect(screen.lines.at(-1)).toBe('issue42 · 5s / 1h · daemon away, the r…');
    await view.close();
    expect(screen.lines.slice(4)).toEqual(['x'.repeat(60), '']);
  });

  it('stops drawing once it is closed', async () => {
    const screen = new Screen();
    const output = terminal(screen, true);
    const view = createView(context(output, output), aWorkUnit(), false);
    await view.event(anEvent(1, 'attempt.opened'));
    await view.close();
    vi.advanceTimersByTime(10_000);
    expect(vi.getTimerCount()).toBe(0);
    expect(screen.lines).toEqual(['']);
  });

  it("does not break into a command's half line, and ends it before its own words", async () => {
    const screen = new Screen();
    const output = terminal(screen, true);
    const view = createView(context(output, output), aWorkUnit({ runnerId: 'command' }), false);
    await view.event(anEvent(1, 'stdout_delta', { text: 'one\ntw' }));
    expect(screen.lines).toEqual(['one', 'tw']);
    await view.event(anEvent(2, 'stdout_delta', { text: 'o' }));
    await view.say('Said.');
    expect(screen.lines).toEqual(['one', 'two', 'Said.', 'issue42 · waiting to start']);
  });

  it('knows what the person has read already, there and only there', async () => {
    const output = terminal(new Screen(), true);
    const pipe = terminal(new Screen(), false);
    const shown = createView(context(output, output), aWorkUnit(), false);
    await shown.event(message(1, 'All done.\n'));
    expect(shown.hasShown('All done.')).toBe(true);
    expect(shown.hasShown('Another text.')).toBe(false);
    const piped = createView(context(pipe, output), aWorkUnit(), false);
    await piped.event(message(1, 'All done.\n'));
    expect(piped.hasShown('All done.')).toBe(false);
    await shown.close();
    await piped.close();
  });
});

describe('elsewhere', () => {
  it('prints plain lines, and the daemon going and coming in words', async () => {
    for (const [isTTY, env] of [
      [false, {}],
      [true, { TERM: 'dumb' }],
    ] as const) {
      const screen = new Screen();
      const output = terminal(screen, isTTY, env);
      const view = createView(context(output, output), aWorkUnit(), false);
      await view.event(message(1, 'Hello\n'));
      view.connection('away');
      view.connection('connected');
      await view.close();
      expect(screen.lines).toEqual([
        'Hello',
        'daemon away, the run goes on; waiting',
        'daemon back',
        '',
      ]);
    }
  });

  it('splits a command: its stdout to stdout, the rest to stderr', async () => {
    const [out, err] = [new Screen(), new Screen()];
    const view = createView(
      context(terminal(out, false), terminal(err, false)),
      aWorkUnit({ runnerId: 'command' }),
      false,
    );
    await view.event(anEvent(1, 'stdout_delta', { text: 'data' }));
    await view.event(anEvent(2, 'stderr_delta', { text: 'talk\n' }));
    await view.event(anEvent(3, 'started', { runner: 'command' }));
    await view.close();
    expect(out.lines).toEqual(['data']);
    expect(err.lines).toEqual(['talk', '· started command', '']);
  });

  it('with --json gives events as NDJSON and nothing else on stdout', async () => {
    const [out, err] = [new Screen(), new Screen()];
    const view = createView(context(terminal(out, true), terminal(err, true)), aWorkUnit(), true);
    await view.event(anEvent(1));
    view.connection('away');
    await view.close();
    expect(out.lines).toEqual([JSON.stringify(anEvent(1)), '']);
    expect(err.lines).toEqual(['daemon away, the run goes on; waiting', '']);
    expect(view.hasShown('anything')).toBe(true);
  });
});

describe('Output', () => {
  it('waits for a slow reader', async () => {
    const pending: (() => void)[] = [];
    const stream = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, done) => void pending.push(done),
    });
    const output = new Output(asTerminal(stream, false), { env: {}, onBroken: () => {} });
    let written = false;
    const write = output.line('x').then(() => {
      written = true;
    });
    await new Promise(setImmediate);
    expect(written).toBe(false);
    pending.shift()?.();
    await write;
  });

  it('tells once that its reader has gone, and drops the rest', async () => {
    const gone = Object.assign(new Error('gone'), { code: 'EPIPE' });
    const stream = new Writable({ write: (_chunk, _encoding, done) => done(gone) });
    let told = 0;
    const onBroken = (): void => {
      told += 1;
    };
    const output = new Output(asTerminal(stream, false), { env: {}, onBroken });
    await output.line('x');
    await new Promise(setImmediate);
    await output.line('y');
    expect(told).toBe(1);
  });

  it('has colour on a terminal only, without NO_COLOR and not on a dumb one', () => {
    const paint = (isTTY: boolean, env: Record<string, string>): string =>
      terminal(new Screen(), isTTY, env).paint('red', 'x');
    expect(paint(true, {})).toBe('\u001b[31mx\u001b[39m');
    expect(paint(true, { NO_COLOR: '' })).toBe('\u001b[31mx\u001b[39m');
    expect(paint(true, { NO_COLOR: '1' })).toBe('x');
    expect(paint(true, { TERM: 'dumb' })).toBe('x');
    expect(paint(false, {})).toBe('x');
  });
});
