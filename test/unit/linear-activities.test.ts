/** What single things of a run look like in Linear, and what a person's answer is read as. */
import { describe, expect, it } from 'vitest';
import {
  describe as about,
  createSpeech,
  type Ending,
  endingOf,
  failureSentence,
} from '../../src/linear/activities.ts';
import { parseAnswer } from '../../src/linear/answers.ts';
import { planOf, pullRequestsIn } from '../../src/linear/found.ts';
import { boundMarkdown, codeBlock, openFence } from '../../src/linear/text.ts';

const speech = createSpeech(['outlive']);

describe('row 194: a call', () => {
  it.each<[string, unknown, string]>([
    ['a command', { command: 'npm  test\n--silent', timeout: 5 }, 'npm test --silent'],
    ['a path', { path: 'src/a.ts', content: 'x' }, 'src/a.ts'],
    ['a pattern', { pattern: 'TODO', glob: '*.ts' }, 'TODO'],
    ['anything else', { depth: 2 }, '{"depth":2}'],
    ['a list', ['a', 1], '["a",1]'],
    ['a text', 'now', 'now'],
    ['a number', 0, '0'],
    ['a command that is empty', { command: '', path: 'a' }, 'a'],
  ])('with %s is told by it', (_name, given, parameter) => {
    expect(about(given)).toBe(parameter);
  });

  it.each<[unknown]>([[{}], [null], [undefined], [''], [' \n'], ['\u0000'], ['\u200b']])(
    'row 195: with %j is "running"',
    (given) => {
      expect(speech.started({ tool: 'ls', arguments: given })).toEqual({
        content: { type: 'action', action: 'ls', parameter: 'running' },
        ephemeral: true,
      });
    },
  );

  it('is bounded', () => {
    expect(about({ command: '😀'.repeat(1_000) }).length).toBeLessThanOrEqual(500);
  });

  it('that ended has its result: a line as it is, more as code, a failure as one', () => {
    const call = { tool: 'bash', arguments: { command: 'ls' } };
    const resultOf = (text: string, isError = false) =>
      (speech.ended(call, { text, isError }).content as { result: string }).result;
    expect(resultOf('one')).toBe('one');
    expect(resultOf('')).toBe('(no output)');
    expect(resultOf('a\nb')).toBe('```\na\nb\n```');
    expect(resultOf('```\nb')).toBe('````\n```\nb\n````');
    expect(resultOf('no such file', true)).toBe('Failed: no such file');
    expect(resultOf('\u001b[31mred\u001b[0m')).toBe('red');
    const long = resultOf('x\n'.repeat(10_000));
    expect(long.length).toBeLessThan(2_200);
    expect(long).toContain('characters cut');
    expect(openFence(long)).toBe(null);
  });
});

describe('an ending', () => {
  const ending = (known: Partial<Ending>): Ending => ({
    handle: 'h1',
    status: 'failed',
    errorCode: null,
    errorMessage: null,
    text: null,
    ...known,
  });

  it('says what happened, what is known of it, and what to do', () => {
    expect(
      failureSentence(ending({ errorCode: 'provider_auth', errorMessage: 'acme said 401.' })),
    ).toBe(
      'The model provider refused the credentials, or there are none: acme said 401. Check the key of the model provider on the machine that runs outlive; `outlive explain h1` tells more.',
    );
    expect(failureSentence(ending({ errorCode: 'what is that' }))).toBe(
      'It did not end well. Write here to try again; `outlive explain h1` tells more.',
    );
  });

  it('of a message that begins with the sentence of its code is not told twice', () => {
    const message = 'It ran into its hard timeout';
    expect(failureSentence(ending({ errorCode: 'hard_timeout', errorMessage: message }))).toMatch(
      /^It ran into its hard timeout\. Write here again/,
    );
  });

  it('that is too long says where the whole of it is', () => {
    const text = `\`\`\`\n${'x'.repeat(30_000)}\n\`\`\``;
    const said = endingOf(speech, ending({ status: 'succeeded', text })) as { body: string };
    expect(said.body.length).toBeLessThanOrEqual(20_000);
    expect(said.body).toMatch(/x…\n```\n\n\*It is longer than fits here; .*`outlive logs h1`\.\*$/);
  });

  it('is an answer, an error, a stop, or nothing', () => {
    const typeOf = (known: Partial<Ending>) => endingOf(speech, ending(known))?.type ?? null;
    expect(typeOf({ status: 'succeeded', text: 'x' })).toBe('response');
    expect(typeOf({ status: 'failed', text: 'x' })).toBe('error');
    expect(typeOf({ status: 'cancelled', errorCode: 'cancelled_by_request' })).toBe('response');
    expect(typeOf({ status: 'cancelled', errorCode: 'interrupted_by_prompt' })).toBe(null);
  });
});

describe('an answer', () => {
  it.each([
    ['yes', null],
    ['Yes!', null],
    ['y', null],
    ['approve', null],
    ['Approved.', null],
    ['OK, but', 'unclear'],
    ['ok', null],
    ['👍', null],
    ['go ahead and thanks', 'and thanks'],
    ['@outlive approve: looks good', 'looks good'],
    ['**approve**', null],
    ['lgtm — ship', 'ship'],
  ])('%j approves, or is unclear', (text, reason) => {
    const expected = reason === 'unclear' ? null : { decision: 'approved', reason };
    expect(parseAnswer(text)).toEqual(expected);
  });

  it.each([
    ['no', null],
    ['No, use the other branch', 'use the other branch'],
    ['deny', null],
    ['denied: too risky', 'too risky'],
    ["don't touch it", 'touch it'],
    ['never', null],
    ['👎', null],
  ])('%j denies', (text, reason) => {
    expect(parseAnswer(text)).toEqual({ decision: 'denied', reason });
  });

  it.each([
    '',
    ' ',
    'What does it do?',
    'yes?',
    'yes and no',
    'yes, but not on main',
    'no problem',
    'no, wait, yes',
    'ok, what is this?',
    'yesterday',
    'nothing',
    'note that it is late',
    'you choose',
    'approve only the first',
  ])('%j is unclear', (text) => {
    expect(parseAnswer(text)).toBe(null);
  });
});

describe('what is found', () => {
  it.each<[string, string[]]>([
    ['see https://github.com/acme/lamp/pull/7#issuecomment-1', ['acme/lamp#7']],
    ['(https://git.example.com/a/b/c/-/merge_requests/3)', ['a/b/c!3']],
    ['https://github.com/acme/lamp/pulls and https://github.com/acme/lamp/issues/7', []],
    ['http://github.com/acme/lamp/pull/7', []],
    ['https://user:secret@github.com/acme/lamp/pull/7', []],
    ['https://github.com/a/b/pull/7 https://github.com/a/b/pull/7', ['a/b#7']],
  ])('pull requests in %j', (text, labels) => {
    expect(pullRequestsIn(text).map(({ label }) => label)).toEqual(labels);
  });

  it('a plan, in the words of several to-do tools', () => {
    expect(planOf('TodoWrite', { todos: [{ content: 'a', status: 'in_progress' }] })).toEqual([
      { content: 'a', status: 'inProgress' },
    ]);
    expect(planOf('update_plan', { plan: [{ step: 'a', status: 'completed' }] })).toEqual([
      { content: 'a', status: 'completed' },
    ]);
    expect(planOf('todo', { items: ['a', '', { text: 'b', done: true }] })).toEqual([
      { content: 'a', status: 'pending' },
      { content: 'b', status: 'completed' },
    ]);
    expect(planOf('bash', { todos: ['a'] })).toBe(null);
    expect(planOf('todo', { action: 'list' })).toBe(null);
  });
});

describe('Markdown that is cut', () => {
  it('closes the code it was cut in, also one of other marks', () => {
    expect(boundMarkdown('```ts\nlet a = 1;\nlet b = 2;\n```\n', 20)).toBe(
      '```ts\nlet a = 1…\n```',
    );
    expect(boundMarkdown('~~~~\nlong long long\n~~~~', 14)).toBe('~~~~\nlon…\n~~~~');
    expect(boundMarkdown('```\nopen', 100)).toBe('```\nopen\n```');
    expect(boundMarkdown('plain', 100)).toBe('plain');
  });

  it('is not fooled by marks inside a line or in other code', () => {
    expect(openFence('a ``` b')).toBe(null);
    expect(openFence('````\n```\n')).toBe('````');
    expect(openFence(codeBlock('```\n```'))).toBe(null);
  });
});
