/** Completion is made from the command list, so it can name nothing that is not there. */
import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { spotsOf } from '../../src/commands/completion.ts';
import { SCRIPTS, SHELLS } from '../../src/commands/completion-scripts.ts';
import { Frame, processSurroundings } from '../../src/commands/context.ts';
import { buildProgram } from '../../src/commands/list.ts';

const program = buildProgram('0.0.0', new Frame(processSurroundings('/nowhere', {})));
const spots = spotsOf(program);

/** What bash would offer for the last of these words. */
function complete(...words: readonly string[]): string[] {
  const text = `${SCRIPTS.bash(spots)}
outlive() { printf 'HANDLE STATUS\\nissue42 running\\n'; }
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _outlive; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const printed = execFileSync('bash', ['-c', text, 'bash', ...words], { encoding: 'utf8' });
  return printed.split('\n').filter((line) => line !== '');
}

describe('bash completion', () => {
  it.each<[string[], string[]]>([
    [
      ['outlive', 're'],
      ['retry', 'reconcile', 'resume', 'restore'],
    ],
    [
      ['outlive', 'daemon', 'st'],
      ['start', 'stop', 'status'],
    ],
    [
      ['outlive', 'run', '--runner', ''],
      ['pi', 'command'],
    ],
    [
      ['outlive', 'run', '--detach', '--no'],
      ['--no-queue', '--no-exclusive'],
    ],
    [['outlive', 'channels', 'set', 'x', '--on-newer', 's'], ['supersede']],
    [['outlive', 'completion', 'z'], ['zsh']],
    [['outlive', 'explain', 'is'], ['issue42']],
    [['outlive', 'run', '--', 'pa'], []],
    [['outlive', '--workspace', 'lab', 'sl'], ['slots']],
  ])('%j offers %j', (words, offered) => {
    expect(complete(...words)).toEqual(offered);
  });
});

describe.each(SHELLS)('the script for %s', (shell) => {
  it('names every command and every long option', () => {
    const text = SCRIPTS[shell](spots);
    const isFish = shell === 'fish';
    for (const { at, options } of spots) {
      expect(text).toContain(isFish ? `__outlive_at "${at}"` : `"${at}")`);
      const words = options.flatMap((option) => option.words);
      const named = words.map((word) => (isFish ? word.replace(/^--?/, '') : word));
      for (const name of named) expect(text).toContain(name);
    }
    expect(text).not.toContain('undefined');
  });
});
