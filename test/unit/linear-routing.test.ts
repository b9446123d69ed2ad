/** Routing of issues, rule by rule, and what people answer. */
import { describe, expect, it } from 'vitest';
import { linearFileSchema } from '../../src/domain/linear-config.ts';
import { readAnswer, route } from '../../src/linear/routing.ts';

const routing = (repositories: readonly object[], more: object = {}) =>
  linearFileSchema.parse({ webhookSecretFile: '/secret', repositories, ...more });

const ISSUE = {
  team: { id: 'team-1', key: 'ENG' },
  project: { id: 'project-1', name: 'Big Launch' },
  labels: ['Frontend', 'bug'],
};

const where = (repositories: readonly object[], issue: typeof ISSUE | null = ISSUE) => {
  const decided = route(issue, routing(repositories));
  return decided.kind === 'repository' ? [decided.repository.path, decided.by] : decided.kind;
};

describe('route', () => {
  it('goes by label before project before team before default', () => {
    const label = { path: '/label', labels: ['frontend'] };
    const project = { path: '/project', projects: ['big launch'] };
    const team = { path: '/team', teams: ['eng'] };
    const fallback = { path: '/default', default: true };
    expect(where([fallback, team, project, label])).toEqual(['/label', 'label']);
    expect(where([fallback, team, project])).toEqual(['/project', 'project']);
    expect(where([fallback, team])).toEqual(['/team', 'team']);
    expect(where([fallback, { path: '/other', teams: ['OPS'] }])).toEqual(['/default', 'default']);
  });

  it('knows teams and projects by their ids too', () => {
    expect(where([{ path: '/a', teams: ['team-1'] }, { path: '/b' }])).toEqual(['/a', 'team']);
    expect(where([{ path: '/a', projects: ['project-1'] }, { path: '/b' }])).toEqual([
      '/a',
      'project',
    ]);
  });

  it('narrows several by the next rule, and asks about what is left', () => {
    const web = { path: '/src/web', labels: ['bug'], teams: ['ENG'] };
    const api = { path: '/src/api', labels: ['bug'], teams: ['OPS'] };
    expect(where([web, api])).toEqual(['/src/web', 'team']);
    const asked = route(ISSUE, routing([web, { ...api, teams: ['ENG'] }, { path: '/src/docs' }]));
    expect(asked).toMatchObject({ kind: 'ask', options: [{ value: 'web' }, { value: 'api' }] });
  });

  it('takes a lone repository without rules, and asks about one whose rules do not hold', () => {
    expect(where([{ path: '/a' }])).toEqual(['/a', 'only']);
    expect(where([{ path: '/a', labels: ['backend'] }])).toBe('ask');
  });

  it('decides for a session without an issue by default or by asking', () => {
    const both = [
      { path: '/a', teams: ['ENG'] },
      { path: '/b', default: true },
    ];
    expect(where(both, null)).toEqual(['/b', 'default']);
    expect(where([{ path: '/a' }, { path: '/b' }], null)).toBe('ask');
  });

  it('is a plain directory where there is no repository', () => {
    expect(route(ISSUE, routing([], { cwd: '/work' }))).toEqual({
      kind: 'directory',
      cwd: '/work',
    });
    expect(route(ISSUE, routing([]))).toEqual({ kind: 'directory', cwd: null });
  });

  it('tells repositories of the same name apart, without a whole path', () => {
    const decided = route(ISSUE, routing([{ path: '/srv/one/app' }, { path: '/srv/two/app' }]));
    expect(decided).toMatchObject({ options: [{ value: 'one/app' }, { value: 'two/app' }] });
  });
});

describe('readAnswer', () => {
  const settings = routing([{ path: '/s/app' }, { path: '/s/app-web' }, { path: '/s/docs' }]);
  const decided = route(null, settings);
  const options = decided.kind === 'ask' ? decided.options : [];
  const answer = (text: string) => readAnswer(text, options, settings)?.path ?? null;

  it.each([
    ['app', '/s/app'],
    [' `App` ', '/s/app'],
    ['App Web', '/s/app-web'],
    ['Please use app-web, thanks!', '/s/app-web'],
    ['3', '/s/docs'],
    ['#2', '/s/app-web'],
    ['the docs', '/s/docs'],
    ['doc', '/s/docs'],
  ])('reads %j as %s', (text, path) => expect(answer(text)).toBe(path));

  it.each(['', '   ', '4', '0', 'either app or docs', 'something else', 'p', '!!!'])(
    'does not guess at %j',
    (text) => expect(answer(text)).toBeNull(),
  );
});
