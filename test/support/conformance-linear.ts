/**
 * What the Linear agent does, with real Pi, on whichever executor: as people in Linear see it.
 * Both tiers that boot an executor run all of it.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bundledPi } from '../../src/layout.ts';
import type { ExecutorKind } from './conformance.ts';
import type { Session } from './linear-double/world.ts';
import type { LinearScene } from './linear-scene.ts';
import { cutPower } from './power.ts';
import { appears, type DaemonProcess, script, within } from './rig.ts';

/** Words of a person with a script for the model in them. */
export const asked = (...lines: string[]): string => `please\n${script(...lines)}\n#end\n`;
/** A call that says it has begun, and ends when told to. */
export const held = (name: string): string =>
  `bash : > begun-${name}; until [ -e go-${name} ]; do sleep 0.1; done`;
const CALL = held('a').slice('bash '.length);

let scene: LinearScene;
const begun = (name: string): Promise<void> => appears(path.join(scene.rig.tree, `begun-${name}`));

/** A Pi that writes down its command line before it is Pi. */
function recordingPi(): { pi: { command: string[] } } {
  const file = path.join(scene.rig.base, 'recording-pi');
  const pi = bundledPi(process.execPath).map((word) => `'${word}'`);
  const lines = ['#!/bin/sh', `echo "$*" >> '${argvFile()}'`, `exec ${pi.join(' ')} "$@"`, ''];
  writeFileSync(file, lines.join('\n'), { mode: 0o755 });
  return { pi: { command: [file] } };
}
const argvFile = (): string => path.join(scene.rig.tree, 'argv');
/** The session file of each Pi that was started, in order. */
const sessionFiles = (): string[] =>
  readFileSync(argvFile(), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => / --session (\S+)/.exec(line)?.[1] ?? line);

/** All that was sent to the model last. */
const lastRequest = (): string => (scene.rig.model.requests().at(-1)?.texts ?? []).join('\n');

async function killed(daemon: DaemonProcess): Promise<void> {
  daemon.kill('SIGKILL');
  await daemon.exited;
}

const types = (session: Session): string[] =>
  scene.words(session).map(({ content }) => content.type);

/** The turns' states, once they are these. */
const statesAre = (...states: string[]): Promise<void> =>
  expect.poll(() => scene.turns().map(({ state }) => state), { timeout: 20_000 }).toEqual(states);

/** All webhooks so far were acted on. */
async function settled(): Promise<void> {
  const waiting = async () => (await scene.rig.client.linearStatus()).status?.deliveries.new;
  await expect.poll(waiting, { timeout: 20_000 }).toBe(0);
}

/** Nothing invalid was sent, to Linear or to the model. */
function nothingInvalid(): void {
  expect(scene.linear.violations()).toEqual([]);
  expect(scene.rig.model.violations()).toEqual([]);
}

function activities(): void {
  it('AC1: a tool call is an ephemeral action, then a durable one with its result; row 292', async () => {
    await scene.startDaemon();
    const call = `${CALL}; echo lit`;
    const session = await scene.begin(asked(`think Look first. ;; bash ${call}`, 'say It turns.'));
    await scene.hears(session, 'the call', ({ ephemeral }) => ephemeral);
    writeFileSync(path.join(scene.rig.tree, 'go-a'), '');
    expect(await scene.concluded(session)).toEqual(['response: It turns.']);
    const actions = scene.linear.world.activities
      .filter(({ sessionId, content }) => sessionId === session.id && content.type === 'action')
      .map(({ content, ephemeral }) => [ephemeral, content]);
    expect(actions).toEqual([
      [true, { type: 'action', action: 'bash', parameter: call }],
      [false, { type: 'action', action: 'bash', parameter: call, result: 'lit' }],
    ]);
    expect(types(session)).toEqual(['thought', 'thought', 'action', 'response']);
    expect(scene.linear.world.isUnresponsive(session)).toBe(false);
    expect(scene.linear.world.status(session)).toBe('complete');
    nothingInvalid();
  });

  it('AC2: a tool call with input {} has "running" as its parameter; row 293', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked('call read {}', 'say Nothing there.'));
    await scene.concluded(session);
    const parameters = scene.linear.world.activities
      .filter(({ content }) => content.type === 'action')
      .map(({ content }) => content['parameter']);
    // Refused before it began: so there is only what came of it.
    expect(parameters).toEqual(['running']);
    nothingInvalid();
  });

  it('the first word is there while no slot is free', async () => {
    scene.configure({}, { limits: { runner: { pi: 1 } } });
    await scene.startDaemon();
    const first = await scene.begin(asked(held('a'), 'say One.'));
    await begun('a');
    const second = await scene.begin(asked('say Two.'));
    await scene.hears(second, 'the first word', ({ content }) => content.type === 'thought');
    expect(scene.linear.world.isUnresponsive(second)).toBe(false);
    expect(scene.lastWords(second)).toEqual([]);
    await scene.rig.client.cancelWorkUnit(scene.running(first), {});
    expect(await scene.concluded(second)).toEqual(['response: Two.']);
  });
}

function interrupts(): void {
  it('AC4: a prompt ends the running turn and goes on in the same session file; row 295', async () => {
    scene.configure({}, recordingPi());
    await scene.startDaemon();
    const session = await scene.begin(asked(`say Remember 4711. ;; ${held('a')}`, 'say Never.'));
    await begun('a');
    await scene.prompt(session, asked(held('b'), 'say As you wish.'));
    await begun('b');
    expect(lastRequest()).toContain('Remember 4711.');
    await scene.prompt(session, asked('say As you wish, again.'));
    expect(await scene.concluded(session)).toEqual(['response: As you wish, again.']);
    const [first, ...later] = sessionFiles();
    expect(first).toContain(session.id.toLowerCase());
    expect(later).toEqual([first, first]);
    await statesAre('interrupted', 'interrupted', 'done');
    nothingInvalid();
  });

  it('AC5: the turn that a prompt ends posts no error; row 296', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked(held('a'), 'say Never.'));
    await begun('a');
    await scene.prompt(session, asked('say Second.'));
    expect(await scene.concluded(session)).toEqual(['response: Second.']);
    expect(types(session)).not.toContain('error');
  });

  it('a prompt in another session of the issue interrupts, and the first goes on afterwards', async () => {
    await scene.startDaemon();
    const first = await scene.begin(asked(held('a'), 'say First is done.'));
    await begun('a');
    const second = await scene.begin(asked('say Second is done.'), first.issue ?? undefined);
    // A session that only begins waits; words in it do not.
    expect(scene.lastWords(second)).toEqual([]);
    await scene.prompt(second, asked('say Second has priority.'));
    expect(await scene.concluded(second)).toEqual(['response: Second has priority.']);
    expect(scene.turns().map(({ kind }) => kind)).toContain('continuation');
    expect(await scene.concluded(first)).toEqual(['response: First is done.']);
    expect(new Set(scene.conversations().map(({ file }) => path.dirname(file))).size).toBe(2);
    nothingInvalid();
  });

  it('a burst of prompts is answered once, with all of them, in order', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked(held('a'), 'say Never.'));
    await begun('a');
    for (const word of ['first', 'second']) await scene.prompt(session, `${word} remark`);
    await scene.prompt(session, asked('say All heard.'));
    expect((await scene.concluded(session)).at(-1)).toBe('response: All heard.');
    const request = lastRequest();
    const places = ['first remark', 'second remark', 'All heard'].map((one) =>
      request.indexOf(one),
    );
    expect(places.every((place) => place > 0)).toBe(true);
    expect(places).toEqual([...places].sort((a, b) => a - b));
    nothingInvalid();
  });
}

function stops(): void {
  it('a stop ends the turn with one last word, and the next prompt works; row X09', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked(held('a'), 'say Never.'));
    await begun('a');
    const stop = scene.linear.webhooks.stop(session);
    await scene.deliver(stop);
    const [last] = await scene.concluded(session);
    expect(last).toMatch(/^response: Stopped/);
    // The same stop again, as a retry or a sweep brings it, harms nothing that came later.
    await scene.prompt(session, asked(held('b'), 'say And on.'));
    await begun('b');
    await scene.deliver(scene.linear.webhooks.restamped(stop));
    await settled();
    await expect(scene.rig.client.getWorkUnit(scene.running(session))).resolves.toMatchObject({
      status: 'running',
    });
    expect(scene.lastWords(session)).toHaveLength(1);
    await scene.prompt(session, asked('say And on again.'));
    expect((await scene.concluded(session, 2)).at(-1)).toBe('response: And on again.');
    expect(types(session)).not.toContain('error');
    nothingInvalid();
  });

  it('bug 25: a stop before its session is known starts nothing, and one word says so', async () => {
    await scene.startDaemon();
    const { webhooks, world } = scene.linear;
    const session = world.startSession('mention', world.addIssue(), asked('say Never.'));
    const created = webhooks.created(session);
    await scene.stop(session);
    await scene.deliver(created);
    expect((await scene.concluded(session))[0]).toMatch(/^response: Stopped/);
    await scene.prompt(session, asked('say Now.'));
    expect((await scene.concluded(session, 2)).at(-1)).toBe('response: Now.');
    expect(scene.turns().filter(({ workUnitId }) => workUnitId !== null)).toHaveLength(1);
    nothingInvalid();
  });

  it('bug 16: a prompt before its session is known is joined to its beginning', async () => {
    await scene.startDaemon();
    const { webhooks, world } = scene.linear;
    const session = world.startSession('mention', world.addIssue(), 'look at this');
    const created = webhooks.created(session);
    await scene.prompt(session, asked('say Both read.'));
    await scene.deliver(created);
    expect(await scene.concluded(session)).toEqual(['response: Both read.']);
    expect(lastRequest()).toContain('look at this');
    nothingInvalid();
  });
}

function restarts(executor: ExecutorKind): void {
  it('a daemon that is killed changes nothing: its turn is taken up and answered', async () => {
    const first = await scene.startDaemon();
    const session = await scene.begin(asked('bash touch go-a', held('a'), 'say Still here.'));
    await begun('a');
    await killed(first);
    await scene.startDaemon();
    expect(await scene.concluded(session)).toEqual(['response: Still here.']);
    await statesAre('done');
    nothingInvalid();
  });

  it('AC6: a turn that was lost is gone on with once, over any number of restarts; row 297', async () => {
    const session = await beginAndLose(executor);
    for (const _restart of [1, 2]) await killed(await scene.startDaemon());
    await scene.startDaemon();
    expect(await scene.concluded(session)).toEqual(['response: Gone on.']);
    await statesAre('done');
    const files = scene.conversations();
    expect(files).toHaveLength(1);
    // Once asked, and once told to go on: not more often than it was lost.
    expect(files[0]?.text.match(/"role":"user"/g)).toHaveLength(2);
    const told = scene.words(session).map(({ content }) => String(content['body']));
    expect(told.filter((text) => text.includes('Resuming after'))).toHaveLength(1);
    nothingInvalid();
  });

  it('a prompt that comes while a lost turn waits to be gone on with is one turn with both; row 228, row 348', async () => {
    const session = await beginAndLose(executor, () => scene.rig.client.pause());
    const daemon = await scene.startDaemon();
    await scene.prompt(session, asked('say Both.'));
    await killed(daemon);
    await scene.startDaemon();
    await scene.rig.client.resume();
    expect(await scene.concluded(session)).toEqual(['response: Both.']);
    const [file] = scene.conversations();
    const prompts = file?.text.split('\n').filter((line) => line.includes('"role":"user"')) ?? [];
    expect(prompts).toHaveLength(2);
    expect(prompts[1]).toMatch(/interrupted.*say Both/s);
    nothingInvalid();
  });

  it('a conversation that is gone is one question to a person, and the next words begin anew', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked('say Remember 4711.'));
    await scene.concluded(session);
    const { sessions } = scene.rig.config.directories;
    for (const { file } of scene.conversations()) rmSync(path.join(sessions, file));
    await scene.prompt(session, 'go on');
    await scene.hears(session, 'a question', ({ content }) => content.type === 'elicitation');
    expect(types(session).filter((type) => type === 'elicitation')).toHaveLength(1);
    await scene.prompt(session, asked('say Anew.'));
    expect((await scene.concluded(session, 2)).at(-1)).toBe('response: Anew.');
    expect(lastRequest()).toContain('Remember 4711.');
    nothingInvalid();
  });
}

/** A turn in the middle of a call, and then neither daemon nor attempt. */
async function beginAndLose(
  executor: ExecutorKind,
  before: () => Promise<unknown> = async () => undefined,
): Promise<Session> {
  const daemon = await scene.startDaemon();
  const session = await scene.begin(asked(held('a'), 'say Gone on.'));
  await begun('a');
  await before();
  await killed(daemon);
  await cutPower(scene.rig, executor);
  return session;
}

function shutdowns(): void {
  const suspend = { OUTLIVE_SHUTDOWN: 'suspend', SHUTDOWN_GRACE_MS: '1000' };
  /** Beyond the grace: what the daemon may take to let go. */
  const MARGIN_MS = 15_000;

  it('AC7: a shutdown ends within its grace and a margin, with a child that will not go, and the turn goes on after it; row 298', async () => {
    const daemon = await scene.startDaemon({ env: suspend });
    const session = await scene.begin(
      asked("bash trap '' TERM INT; : > begun-a; while :; do sleep 0.1; done", 'say After it.'),
    );
    await begun('a');
    const at = performance.now();
    daemon.kill('SIGTERM');
    await within('the daemon to end', daemon.exited);
    expect(performance.now() - at).toBeLessThan(1_000 + MARGIN_MS);
    expect(scene.turns()).toMatchObject([{ state: 'running' }]);
    const { items } = await afterwards(session);
    expect(items).toMatchObject([{ status: 'lost', errorCode: 'suspended' }, {}]);
    expect(await scene.concluded(session)).toEqual(['response: After it.']);
  });

  it('AC8: without a turn a shutdown does not wait; row 299', async () => {
    const daemon = await scene.startDaemon({ env: { ...suspend, SHUTDOWN_GRACE_MS: '60000' } });
    const session = await scene.begin(asked('say Done.'));
    await scene.concluded(session);
    const at = performance.now();
    daemon.kill('SIGTERM');
    await within('the daemon to end', daemon.exited);
    expect(performance.now() - at).toBeLessThan(30_000);
  });
}

/** The next daemon's view of the attempts of a session's turn. */
async function afterwards(session: Session) {
  await scene.startDaemon();
  await scene.concluded(session);
  const [turn] = scene.turns();
  const { attempts } = await scene.rig.client.getWorkUnit(turn?.workUnitId ?? '');
  return { items: attempts };
}

function questions(): void {
  it('a call that needs an approval is a question with a choice, and an answer in Linear decides it', async () => {
    scene.configure({}, { approvals: { policy: { rules: [{ effect: 'ask', tool: 'bash' }] } } });
    await scene.startDaemon();
    const session = await scene.begin(asked('bash echo once >> effects', 'say Allowed.'));
    await scene.hears(session, 'a question', ({ signal }) => signal === 'select');
    expect(scene.linear.world.status(session)).toBe('awaitingInput');
    await scene.prompt(session, 'Yes, go ahead!');
    expect(await scene.concluded(session)).toEqual(['response: Allowed.']);
    expect(readFileSync(path.join(scene.rig.tree, 'effects'), 'utf8')).toBe('once\n');
    expect(scene.turns()).toHaveLength(1);
    nothingInvalid();
  });

  it('the same question can be answered in outlive', async () => {
    scene.configure({}, { approvals: { policy: { rules: [{ effect: 'ask', tool: 'bash' }] } } });
    await scene.startDaemon();
    const session = await scene.begin(asked('bash echo once >> effects', 'say Denied it was.'));
    await scene.hears(session, 'a question', ({ signal }) => signal === 'select');
    const { items } = await scene.rig.client.listApprovals({ workUnit: scene.running(session) });
    await scene.rig.client.deny(items[0]?.id ?? '', {});
    expect(await scene.concluded(session)).toEqual(['response: Denied it was.']);
    nothingInvalid();
  });
}

function troubles(): void {
  it('bug 11: while nobody may call Linear that is seen, and what was to be said is said later', async () => {
    scene.linear.oauth.allowsClientCredentials = false;
    const daemon = await scene.startDaemon();
    const session = await scene.begin(asked('say Kept.'));
    const problem = async () => (await scene.rig.client.linearStatus()).status?.authProblem ?? null;
    await expect.poll(problem, { timeout: 20_000 }).not.toBeNull();
    const ended = () => scene.turns().map(({ state }) => state);
    await expect.poll(ended, { timeout: 20_000 }).toEqual(['awaiting_activity']);
    await killed(daemon);
    scene.linear.oauth.allowsClientCredentials = true;
    await scene.startDaemon();
    expect(await scene.concluded(session)).toEqual(['response: Kept.']);
    await expect.poll(problem).toBeNull();
  });

  it('bug 4: while the budget is used up nothing is lost, and the last word comes', async () => {
    await scene.startDaemon();
    scene.linear.faults.next('agentActivityCreate', { kind: 'rate_limited', retryAfter: 1 }, 3);
    const session = await scene.begin(asked('bash echo a', 'bash echo b', 'say Through.'));
    expect(await scene.concluded(session)).toEqual(['response: Through.']);
    nothingInvalid();
  });

  it('the app is removed: its runs are stopped and its token is dropped', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked(held('a'), 'say Never.'));
    await begun('a');
    const id = scene.running(session);
    scene.linear.oauth.revokeAll();
    scene.linear.oauth.allowsClientCredentials = false;
    await scene.deliver(scene.linear.webhooks.revoked());
    expect((await scene.rig.outcome(id)).workUnit.status).toBe('cancelled');
    const { status } = await scene.rig.client.linearStatus();
    expect(status?.authProblem).not.toBeNull();
  });

  it('a webhook that never came is found by a sweep, and when it comes late it changes nothing', async () => {
    await killed(await scene.startDaemon());
    const { world, webhooks } = scene.linear;
    const session = world.startSession('mention', world.addIssue(), asked('say Found.'));
    const created = webhooks.created(session);
    await scene.startDaemon();
    expect(await scene.concluded(session)).toEqual(['response: Found.']);
    await scene.deliver(created);
    expect(scene.turns()).toHaveLength(1);
    nothingInvalid();
  });
}

/** All of it. */
export function linearConformance(
  executor: ExecutorKind,
  create: () => Promise<LinearScene>,
): void {
  beforeEach(async () => {
    scene = await create();
  });
  afterEach(async () => {
    await scene.end();
  });
  describe('what is told', () => {
    activities();
  });
  describe('prompts', () => {
    interrupts();
  });
  describe('stops', () => {
    stops();
  });
  describe('restarts', () => {
    restarts(executor);
  });
  describe('shutdowns', () => {
    shutdowns();
  });
  describe('questions', () => {
    questions();
  });
  describe('troubles', () => {
    troubles();
  });
}
