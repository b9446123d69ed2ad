/** Where the Linear agent works: the issue it takes, the repository it asks for, the tree it makes. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asked } from '../support/conformance-linear.ts';
import type { Session } from '../support/linear-double/world.ts';
import { LinearScene } from '../support/linear-scene.ts';
import { cleanUpTrees, git, type TreeRig, treeRig } from '../support/linear-trees.ts';

let scene: LinearScene;
beforeEach(async () => {
  scene = await LinearScene.create({ withoutSystemd: true });
});
afterEach(async () => {
  await scene.end();
  cleanUpTrees();
});

/** Delegates an issue, as a person does. */
async function delegate(issue: Session['issue'], text = ''): Promise<Session> {
  const session = scene.linear.world.startSession('delegation', issue, text);
  await scene.deliver(scene.linear.webhooks.created(session));
  return session;
}

const stateOf = ({ issue }: Session): string =>
  issue?.team.states.find(({ id }) => id === issue.stateId)?.type ?? '';

describe('an issue that work begins on', () => {
  it('is moved to the first started state of its team, and is the agent’s if it was nobody’s', async () => {
    await scene.startDaemon();
    const session = await scene.begin(asked('say Done.'));
    await scene.concluded(session);
    await expect.poll(() => stateOf(session), { timeout: 20_000 }).toBe('started');
    expect(session.issue?.delegateId).toBe(scene.linear.world.app.id);
    expect(scene.linear.violations()).toEqual([]);
  });

  it('stays where it is when nobody has accepted it yet, and with whom it is', async () => {
    await scene.startDaemon();
    const { world } = scene.linear;
    const issue = world.addIssue({ state: 'triage', description: asked('say Done.') });
    await scene.concluded(await delegate(issue));
    expect(issue.team.states.find(({ id }) => id === issue.stateId)?.type).toBe('triage');
    expect(scene.linear.calls('issueUpdate')).toEqual([]);
  });
});

describe('a repository', () => {
  let lamps: TreeRig;
  let horns: TreeRig;
  beforeEach(() => {
    lamps = treeRig();
    horns = treeRig();
  });
  const worked = asked('bash pwd > where; git branch --show-current >> where', 'say Done.');
  const placeOf = (session: Session): string => {
    const text = String(scene.words(session).map(({ content }) => content['parameter']));
    expect(text).toContain('where');
    const [turn] = scene.turns().filter(({ session: id }) => id === session.id);
    return turn?.workUnitId ?? '';
  };
  const cwdOf = async (session: Session): Promise<string> =>
    (await scene.rig.client.getWorkUnit(placeOf(session))).cwd;

  it('gets one work tree for each issue, whichever session works on it', async () => {
    scene.configure({ repositories: [{ path: lamps.clone }] });
    await scene.startDaemon();
    const first = await scene.begin(worked);
    await scene.concluded(first);
    const second = await scene.begin(worked, first.issue ?? undefined);
    await scene.concluded(second);
    const other = await scene.begin(worked);
    await scene.concluded(other);
    const place = await cwdOf(first);
    expect(await cwdOf(second)).toBe(place);
    expect(await cwdOf(other)).not.toBe(place);
    const [cwd, branch] = readFileSync(path.join(place, 'where'), 'utf8').trim().split('\n');
    expect([cwd, branch]).toEqual([place, first.issue?.branchName]);
    expect(git(lamps.clone, 'status', '--porcelain')).toBe('');
  });

  it('is asked for where rules do not decide, once, and the answer is what is done', async () => {
    const repositories = [{ path: lamps.clone }, { path: horns.clone, labels: ['horn'] }];
    scene.configure({ repositories: [...repositories, { path: lamps.remote, labels: ['x'] }] });
    const daemon = await scene.startDaemon();
    const session = await scene.begin(worked);
    await scene.hears(session, 'a question', ({ signal }) => signal === 'select');
    const [question] = scene.words(session).filter(({ signal }) => signal === 'select');
    const { options } = (question?.signalMetadata ?? {}) as { options: { value: string }[] };
    expect(options.length).toBe(3);
    daemon.kill('SIGKILL');
    await daemon.exited;
    await scene.startDaemon();
    await scene.prompt(session, options[1]?.value ?? '');
    expect(await scene.concluded(session)).toHaveLength(1);
    expect(scene.words(session).filter(({ signal }) => signal === 'select')).toHaveLength(1);
    const turn = scene.turns().find(({ workUnitId }) => workUnitId !== null);
    const { cwd } = await scene.rig.client.getWorkUnit(turn?.workUnitId ?? '');
    const common = git(cwd, 'rev-parse', '--path-format=absolute', '--git-common-dir');
    expect(common).toBe(path.join(horns.clone, '.git'));
    expect(scene.linear.violations()).toEqual([]);
  });

  it('is set up once in a new work tree, before anything else, as work that is seen', async () => {
    const setup = ['sh', '-c', 'echo set up >> set-up'];
    scene.configure({ repositories: [{ path: lamps.clone, setup }] });
    await scene.startDaemon();
    const session = await scene.begin(asked('bash cp set-up found', 'say Done.'));
    expect(await scene.concluded(session)).toEqual(['response: Done.']);
    await scene.prompt(session, asked('say Again.'));
    await scene.concluded(session, 2);
    const turn = scene.turns().find(({ workUnitId }) => workUnitId !== null);
    const { cwd } = await scene.rig.client.getWorkUnit(turn?.workUnitId ?? '');
    expect(readFileSync(path.join(cwd, 'found'), 'utf8')).toBe('set up\n');
    expect(readFileSync(path.join(cwd, 'set-up'), 'utf8')).toBe('set up\n');
    const { items } = await scene.rig.client.listWorkUnits({});
    expect(items.filter(({ ownerType }) => ownerType === 'linear_setup')).toHaveLength(1);
  });

  it('whose set-up fails is an error that says so, and is tried again when somebody writes', async () => {
    const mark = path.join(lamps.root, 'mended');
    const setup = ['sh', '-c', `test -e '${mark}'`];
    scene.configure({ repositories: [{ path: lamps.clone, setup }] });
    await scene.startDaemon();
    const session = await scene.begin(asked('say Never.'));
    const [failed] = await scene.concluded(session);
    expect(failed).toMatch(/^error: Setting up its work tree failed.*outlive logs/);
    writeFileSync(mark, '');
    await scene.prompt(session, asked('say Now.'));
    expect((await scene.concluded(session, 2)).at(-1)).toBe('response: Now.');
    expect(existsSync(mark)).toBe(true);
  });
});

describe('the log', () => {
  it('has no prompt, no tool input and no token', async () => {
    const daemon = await scene.startDaemon({ env: { OUTLIVE_LOG_LEVEL: 'trace' } });
    const session = await scene.begin(asked('bash echo 4711-input', 'say 4711-answer'));
    await scene.concluded(session);
    await scene.prompt(session, asked('say 4711-again'));
    await scene.concluded(session, 2);
    const log = daemon.output();
    expect(log).toContain('a new token');
    expect(log).not.toMatch(/4711|access_[0-9a-f]{32}|Keep the light on/);
    for (const secret of [scene.linear.oauth.clientSecret, scene.linear.webhooks.secret])
      expect(log).not.toContain(secret);
  });
});
