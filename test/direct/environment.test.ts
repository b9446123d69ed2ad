/** Variables that a request gives, on a machine without systemd: real daemon, real wrapper. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli } from '../support/cli.ts';
import { Rig } from '../support/rig.ts';

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create({ withoutSystemd: true });
  await rig.startDaemon();
});
afterEach(() => rig.end());

const sh = (text: string): string[] => ['sh', '-c', text];
const inTree = (name: string): string => path.join(rig.tree, name);
const written = (name: string): string => readFileSync(inTree(name), 'utf8');

describe('variables; X14', () => {
  it('reach the command and its verification, and outlive’s own win', async () => {
    writeFileSync(inTree('vars'), 'FROM_FILE="of the file"\nBOTH=file\n');
    const { workUnit } = await rig.runToEnd({
      argv: sh('env | sort > run'),
      externalSubject: 'github:acme/app#42',
      environment: { BOTH: 'request', LANG: 'C', OUTLIVE_VAR_FILE: 'a b' },
      environmentFiles: [inTree('vars'), `-${inTree('none')}`],
      outcome: { verify: { argv: sh('env | sort > verify') } },
    });
    expect(workUnit.outcome).toMatchObject({ state: 'satisfied' });
    for (const of of ['run', 'verify']) {
      const lines = written(of).split('\n');
      for (const line of [
        'FROM_FILE=of the file',
        'BOTH=request',
        'LANG=C',
        'OUTLIVE_VAR_FILE=a b',
        'OUTLIVE_SUBJECT=github:acme/app#42',
        `OUTLIVE_HANDLE=${workUnit.handle}`,
      ]) {
        expect(lines, of).toContain(line);
      }
    }
  });

  it('show their values nowhere, and one that is named a secret is redacted where it is printed', async () => {
    const secret = 'hush 7261 hush';
    const { workUnit, events } = await rig.runToEnd({
      handle: 'hushed',
      argv: sh('echo "it is $DEPLOY_TOKEN"'),
      environment: { DEPLOY_TOKEN: secret, UNSAID: 'never 5512 said' },
    });
    expect(workUnit.status).toBe('succeeded');
    const shown = [
      JSON.stringify(workUnit),
      JSON.stringify(events),
      JSON.stringify(await rig.client.listWorkUnits({ limit: 10 })),
    ];
    for (const words of [
      ['show', 'hushed'],
      ['show', 'hushed', '--json'],
      ['logs', 'hushed'],
      ['explain', 'hushed'],
    ]) {
      const { status, stdout, stderr } = await cli(rig, words);
      expect(status, words.join(' ')).toBe(0);
      shown.push(stdout + stderr);
    }
    expect(shown.join('')).toContain('it is [redacted DEPLOY_TOKEN]');
    expect(shown.join('')).not.toMatch(/7261|5512/);
  });

  it.each([
    ['that is not there', 'missing', /missing cannot be read: ENOENT/],
    ['that is malformed', 'bad', /bad is malformed in line 2: there is no "=" in it/],
  ])('from a file %s fail the start at once, and nothing has run', async (_, name, said) => {
    writeFileSync(inTree('bad'), 'A=1\nB\n');
    const { workUnit } = await rig.runToEnd({
      argv: sh('touch ran'),
      environmentFiles: [inTree(name)],
    });
    expect(workUnit).toMatchObject({ status: 'failed', errorCode: 'launch_failed' });
    expect(workUnit.errorMessage).toMatch(said);
    expect(() => written('ran')).toThrow('ENOENT');
  });

  it('are given on the command line, with --env and --env-file', async () => {
    writeFileSync(inTree('vars'), 'FROM_FILE=1\n');
    const words = [
      'run',
      '--runner',
      'command',
      '--env',
      'GIVEN=2',
      '--env',
      'LANG',
      '--env-file',
      'vars',
    ];
    const shell = ['--', 'sh', '-c', 'echo $FROM_FILE $GIVEN $LANG'];
    const { status, stdout } = await cli(rig, [...words, ...shell], { cwd: rig.tree });
    expect({ status, stdout }).toEqual({ status: 0, stdout: '1 2 C.UTF-8\n' });
  });
});
