/** What broke for other agents in Linear, and what a double and a store alone could not show. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { STORE_FILE } from '../../src/store/open.ts';
import { asked, held } from '../support/conformance-linear.ts';
import type { Session } from '../support/linear-double/world.ts';
import { LinearScene } from '../support/linear-scene.ts';
import { git } from '../support/linear-trees.ts';
import { appears, type DaemonProcess } from '../support/rig.ts';

let scene: LinearScene;
beforeEach(async () => {
  scene = await LinearScene.create({ withoutSystemd: true });
});
afterEach(async () => {
  await scene.end();
});

const inTree = (name: string): string => path.join(scene.rig.tree, name);
const linesOf = (name: string): string[] =>
  readFileSync(inTree(name), 'utf8').trimEnd().split('\n');
const begun = (name: string): Promise<void> => appears(inTree(`begun-${name}`));
const workUnits = async () => (await scene.rig.client.listWorkUnits({})).items;

async function killed(daemon: DaemonProcess): Promise<void> {
  daemon.kill('SIGKILL');
  await daemon.exited;
}

/** All webhooks so far were acted on. */
async function settled(): Promise<void> {
  const waiting = async () => (await scene.rig.client.linearStatus()).status?.deliveries.new;
  await expect.poll(waiting, { timeout: 20_000 }).toBe(0);
}

function nothingInvalid(): void {
  expect(scene.linear.violations()).toEqual([]);
  expect(scene.rig.model.violations()).toEqual([]);
}

/** What a person and an automation see of other things that happen: none of it is for an agent. */
function others(session: Session): Parameters<LinearScene['deliver']>[0][] {
  const { webhooks, world } = scene.linear;
  const { issue, comment } = session;
  const of = (type: string, action: string, rest: object) =>
    webhooks.deliver(webhooks.samples.envelope(type, action, rest));
  const data = { id: issue?.id, identifier: issue?.identifier, title: 'Another title' };
  return [
    of('Issue', 'update', { data, updatedFrom: { title: issue?.title } }),
    of('Issue', 'update', { data: { ...data, delegateId: world.app.id }, updatedFrom: {} }),
    of('Comment', 'create', { data: { ...comment, issueId: issue?.id } }),
    of('AppUserNotification', 'issueCommentMention', { notification: { issueId: issue?.id } }),
  ];
}

describe('the same webhook again', () => {
  it('bug 1: at once, later, with another stamp or after a restart begins nothing more, and a stop reaches what runs', async () => {
    const first = await scene.startDaemon();
    const { webhooks, world } = scene.linear;
    const session = world.startSession(
      'mention',
      world.addIssue(),
      asked(`bash echo run >> runs ;; ${held('a')}`, 'say Never.'),
    );
    const created = webhooks.created(session);
    const again = async (): Promise<void> => {
      await scene.deliver(created);
      await scene.deliver(webhooks.restamped(created));
    };
    await Promise.all(Array.from({ length: 20 }, () => scene.deliver(created)));
    await begun('a');
    await again();
    await killed(first);
    await scene.startDaemon();
    await again();
    await settled();
    expect(scene.turns()).toHaveLength(1);
    expect(await workUnits()).toHaveLength(1);
    const id = scene.running(session);
    await scene.stop(session);
    expect(await scene.concluded(session)).toEqual([expect.stringMatching(/^response: Stopped/)]);
    await again();
    await settled();
    expect((await scene.rig.client.getWorkUnit(id)).status).toBe('cancelled');
    expect(linesOf('runs')).toEqual(['run']);
    expect(await workUnits()).toHaveLength(1);
    nothingInvalid();
  });

  it('bug 2: what the app itself delegated to itself starts nothing', async () => {
    await scene.startDaemon();
    const { webhooks, world } = scene.linear;
    const delegated = Array.from({ length: 16 }, () => {
      const session = world.startSession('delegation', world.addIssue(), asked('say Again.'));
      return Object.assign(session, { creator: world.app });
    });
    for (const session of delegated) await scene.deliver(webhooks.created(session));
    await settled();
    expect(await workUnits()).toEqual([]);
    expect(scene.turns()).toEqual([]);
    nothingInvalid();
  });

  it('bug 3: one answer is one comment, and none of the other events of a mention is a second trigger', async () => {
    await scene.startDaemon();
    const name = scene.linear.world.app.name;
    const session = await scene.begin(asked(`say I am @${name}.`));
    for (const other of others(session)) await scene.deliver(other);
    expect(await scene.concluded(session)).toEqual([`response: I am ${name}.`]);
    for (const other of others(session)) await scene.deliver(other);
    await settled();
    expect(scene.turns()).toHaveLength(1);
    expect(scene.linear.world.comments.map(({ body }) => body)).toEqual([`I am ${name}.`]);
    nothingInvalid();
  });

  it('bug 36: an edited issue goes on with no session that rests', async () => {
    await scene.startDaemon();
    const issue = scene.linear.world.addIssue();
    const sessions: Session[] = [];
    for (const word of ['One', 'Two']) {
      const session = await scene.begin(asked(`say ${word}.`), issue);
      await scene.concluded(session);
      sessions.push(session);
    }
    for (const session of sessions) {
      for (const other of others(session)) await scene.deliver(other);
    }
    await settled();
    expect(scene.turns().map(({ state }) => state)).toEqual(['done', 'done']);
    expect(await workUnits()).toHaveLength(2);
    nothingInvalid();
  });
});

it('T27 #8529: while nothing can be told to Linear work ends as it ends, and that is told afterwards, once', async () => {
  await scene.startDaemon();
  scene.linear.faults.always('agentActivityCreate', { kind: 'cut' });
  const session = await scene.begin(asked('bash echo done > done', 'say It is done.'));
  const status = async () => (await workUnits()).map((one) => one.status);
  await expect.poll(status, { timeout: 20_000 }).toEqual(['succeeded']);
  expect(scene.lastWords(session)).toEqual([]);
  scene.linear.faults.clear();
  expect(await scene.concluded(session)).toEqual(['response: It is done.']);
  expect(scene.turns()).toHaveLength(1);
});

it('bug 33: whoever begins a session and however, it is one turn and one answer', async () => {
  await scene.startDaemon();
  const { webhooks, world } = scene.linear;
  const issue = world.addIssue({ description: asked('say Delegated.') });
  const delegated = world.startSession('delegation', issue);
  const mentioned = world.startSession('mention', world.addIssue(), asked('say Mentioned.'));
  const automated = world.startSession('automation', null);
  for (const one of [delegated, mentioned, automated]) await scene.deliver(webhooks.created(one));
  expect(await scene.concluded(delegated)).toEqual(['response: Delegated.']);
  expect(await scene.concluded(mentioned)).toEqual(['response: Mentioned.']);
  expect(await scene.concluded(automated)).toHaveLength(1);
  expect(scene.turns()).toHaveLength(3);
  nothingInvalid();
});

it('bug 13: every message of a session reaches the model, the third as well', async () => {
  await scene.startDaemon();
  const session = await scene.begin(asked('say One.'));
  await scene.concluded(session);
  for (const [index, word] of ['lighthouse', 'harbour'].entries()) {
    await scene.prompt(session, `about the ${word}\n${asked(`say ${word} it is.`)}`);
    const words = await scene.concluded(session, index + 2);
    expect(words.at(-1)).toBe(`response: ${word} it is.`);
    expect(JSON.stringify(scene.rig.model.requests().at(-1))).toContain(`about the ${word}`);
  }
  nothingInvalid();
});

describe('a daemon that ends', () => {
  it('bug 17: is followed by one that knows the session and its conversation', async () => {
    const first = await scene.startDaemon();
    const session = await scene.begin(asked('say Remember 4711.'));
    await scene.concluded(session);
    await killed(first);
    const second = await scene.startDaemon();
    await scene.prompt(session, asked(held('a'), 'say Never.'));
    await begun('a');
    await killed(second);
    await scene.startDaemon();
    await scene.prompt(session, asked('say Still the same.'));
    const words = await scene.concluded(session, 2);
    expect(words).toEqual(['response: Remember 4711.', 'response: Still the same.']);
    const conversations = scene.conversations();
    expect(conversations).toHaveLength(1);
    expect(conversations[0]?.text).toMatch(/Remember 4711.*Still the same/s);
    nothingInvalid();
  });

  it('bug 18: by SIGKILL in the middle of its writes loses no session, and no more runs at once than may', async () => {
    scene.configure({}, { limits: { runner: { pi: 2 } } });
    const sessions: Session[] = [];
    const run = (n: number): string[] => [
      `bash : > running-${n}; ls -d running-* | wc -l >> counts; sleep 0.4; rm running-${n}`,
      `say Number ${n}.`,
    ];
    let daemon = await scene.startDaemon();
    for (let n = 0; n < 6; n++) sessions.push(await scene.begin(asked(...run(n))));
    const heard = () => scene.linear.world.activities.length;
    for (let death = 0; death < 5; death++) {
      const before = heard();
      await scene.linear.waitFor(() => heard() > before || answered());
      await killed(daemon);
      expect(integrity()).toBe('ok');
      daemon = await scene.startDaemon();
    }
    for (const [n, session] of sessions.entries()) {
      expect(await scene.concluded(session)).toEqual([`response: Number ${n}.`]);
    }
    expect(scene.turns()).toHaveLength(6);
    const counts = linesOf('counts').map(Number);
    expect(counts).toHaveLength(6);
    expect(Math.max(...counts)).toBeLessThanOrEqual(2);
    nothingInvalid();

    function answered(): boolean {
      return sessions.every((session) => scene.lastWords(session).length > 0);
    }
  });

  it('bug 19: is no end of a question to a person: it stands, and its answer counts afterwards', async () => {
    for (const name of ['app', 'docs']) {
      const repository = path.join(scene.rig.base, name);
      mkdirSync(repository);
      git(repository, 'init', '--quiet', '--initial-branch=main');
      git(repository, 'commit', '--quiet', '--allow-empty', '--message', 'Begin');
    }
    const repositories = ['app', 'docs'].map((name) => ({
      path: path.join(scene.rig.base, name),
      labels: [name],
    }));
    scene.configure({ repositories, trees: path.join(scene.rig.base, 'trees') });
    const first = await scene.startDaemon();
    const session = await scene.begin(asked('bash git rev-parse --show-toplevel', 'say There.'));
    await scene.hears(session, 'a question', ({ signal }) => signal === 'select');
    await killed(first);
    const second = await scene.startDaemon();
    await settled();
    expect(scene.turns().map(({ state }) => state)).toEqual(['pending']);
    await killed(second);
    await scene.startDaemon();
    await scene.prompt(session, 'docs');
    expect(await scene.concluded(session)).toEqual(['response: There.']);
    const [result] = scene
      .words(session)
      .map(({ content }) => content['result'])
      .filter((value) => typeof value === 'string');
    expect(result).toBe(path.join(scene.rig.base, 'trees', session.issue?.identifier ?? ''));
    const common = execFileSync('git', ['rev-parse', '--git-common-dir'], { cwd: result ?? '' });
    expect(common.toString().trim()).toBe(path.join(scene.rig.base, 'docs', '.git'));
    const questions = scene.words(session).filter(({ signal }) => signal === 'select');
    expect(questions).toHaveLength(1);
    nothingInvalid();
  });
});

it('bug 19: nor is it the end of a call that waits for a person’s leave, which is asked for once', async () => {
  scene.configure({}, { approvals: { policy: { rules: [{ effect: 'ask', tool: 'bash' }] } } });
  const first = await scene.startDaemon();
  const session = await scene.begin(asked('bash echo once >> effects', 'say Allowed.'));
  await scene.hears(session, 'a question', ({ signal }) => signal === 'select');
  await killed(first);
  await killed(await scene.startDaemon());
  await scene.startDaemon();
  await scene.prompt(session, 'yes');
  expect(await scene.concluded(session)).toEqual(['response: Allowed.']);
  expect(linesOf('effects')).toEqual(['once']);
  const questions = scene.words(session).filter(({ signal }) => signal === 'select');
  expect(questions).toHaveLength(1);
  expect(scene.turns()).toHaveLength(1);
  nothingInvalid();
});

it('bug 21: a stop reaches what the agent started, also in a session of its own, and is no error', async () => {
  await scene.startDaemon();
  // Its pid is that of its namespace; a lock is the same for everybody.
  const child = "setsid flock lock sh -c ': > begun-child; exec sleep 1000'";
  const session = await scene.begin(
    asked(`bash ${child} > /dev/null 2>&1 & ${held('a').slice('bash '.length)}`),
  );
  await begun('a');
  await begun('child');
  expect(isLocked(), 'the child is alive').toBe(true);
  await scene.stop(session);
  expect(await scene.concluded(session)).toEqual([expect.stringMatching(/^response: Stopped/)]);
  expect(isLocked(), 'the child is alive').toBe(false);
  expect(scene.words(session).map(({ content }) => content.type)).not.toContain('error');
  nothingInvalid();

  function isLocked(): boolean {
    return spawnSync('flock', ['-n', inTree('lock'), 'true']).status === 1;
  }
});

/** What SQLite says of the store. */
function integrity(): unknown {
  const file = path.join(scene.rig.config.directories.store, STORE_FILE);
  const db = new Database(file, { readonly: true });
  try {
    return db.pragma('integrity_check', { simple: true });
  } finally {
    db.close();
  }
}
