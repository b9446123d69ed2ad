/** Routing of issues: total, deterministic, and what it asks can be answered. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LinearRepository } from '../../src/domain/linear-repositories.ts';
import { type RoutedIssue, readAnswer, route } from '../../src/linear/routing.ts';

const word = fc.constantFrom('app', 'App', 'web', 'app-web', 'app web', 'api', 'docs');
const words = fc.array(word, { maxLength: 3 });

const repository: fc.Arbitrary<LinearRepository> = fc.record({
  path: fc
    .array(fc.constantFrom('src', 'app', 'web', 'app-web', 'app.web', 'a b'), {
      minLength: 1,
      maxLength: 4,
    })
    .map((parts) => `/${parts.join('/')}`),
  teams: words,
  projects: words,
  labels: words,
  default: fc.boolean(),
  fetch: fc.constant(true),
});
const repositories = fc.uniqueArray(repository, { selector: ({ path }) => path, maxLength: 6 });

const issue: fc.Arbitrary<RoutedIssue | null> = fc.option(
  fc.record({
    team: fc.record({ id: word, key: word }),
    project: fc.option(fc.record({ id: word, name: word })),
    labels: words,
  }),
);

describe('where an issue goes', () => {
  it('is always one repository of the configuration, its directory, or a question', () => {
    fc.assert(
      fc.property(repositories, issue, (all, facts) => {
        const routing = { repositories: all, cwd: '/home/me' };
        const decided = route(facts, routing);
        expect(route(structuredClone(facts), structuredClone(routing))).toEqual(decided);
        if (decided.kind === 'directory') expect(all).toEqual([]);
        else if (decided.kind === 'repository') expect(all).toContain(decided.repository);
        else {
          expect(decided.options.length).toBeGreaterThan(0);
          const values = decided.options.map(({ value }) => value);
          expect(new Set(values).size).toBe(values.length);
        }
      }),
    );
  });

  it('is asked so that each option, given back as it is or by its number, is an answer', () => {
    fc.assert(
      fc.property(repositories, issue, (all, facts) => {
        const routing = { repositories: all };
        const decided = route(facts, routing);
        fc.pre(decided.kind === 'ask');
        const answers = decided.options.map(({ value }, index) => {
          const byNumber = readAnswer(`${index + 1}`, decided.options, routing);
          expect(byNumber).not.toBeNull();
          const byName = readAnswer(value, decided.options, routing);
          // Names that only differ in what people leave out are told apart by number alone.
          if (byName !== null) expect(byName).toBe(byNumber);
          return byNumber?.path;
        });
        expect(new Set(answers).size).toBe(answers.length);
      }),
    );
  });

  it('is never decided by an answer that names nothing', () => {
    fc.assert(
      fc.property(repositories, issue, fc.string(), (all, facts, text) => {
        const routing = { repositories: all };
        const decided = route(facts, routing);
        fc.pre(decided.kind === 'ask');
        const answer = readAnswer(text, decided.options, routing);
        if (answer !== null) expect(all).toContain(answer);
      }),
    );
  });
});
