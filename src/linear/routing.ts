/**
 * Which repository an issue goes to. Pure: rules of config.json, facts of the issue, and where
 * they do not decide, a person's answer.
 */
import type { LinearRepository } from '../domain/linear-repositories.ts';
import type { IssueFacts } from './port.ts';

/** What is known of the issue; a session without one has nothing. */
export type RoutedIssue = Pick<IssueFacts, 'team' | 'project' | 'labels'>;

export type RoutedBy = 'label' | 'project' | 'team' | 'default' | 'only' | 'answer';

/** As Linear takes it in the metadata of the signal `select`. */
export interface RouteOption {
  readonly label: string;
  readonly value: string;
}

export type Route =
  | { readonly kind: 'repository'; readonly repository: LinearRepository; readonly by: RoutedBy }
  /** No repository is configured: null is the daemon's home directory. */
  | { readonly kind: 'directory'; readonly cwd: string | null }
  | {
      readonly kind: 'ask';
      readonly question: string;
      readonly options: readonly RouteOption[];
    };

export interface Routing {
  readonly repositories: readonly LinearRepository[];
  readonly cwd?: string | undefined;
}

/** People write names in any case, and spaces where a path has none. */
const plain = (text: string): string =>
  text
    .normalize('NFKC')
    .trim()
    .toLowerCase()
    .replaceAll(/[\s_/-]+/g, '-');

const names = (list: readonly string[], wanted: readonly string[]): boolean => {
  const known = new Set(list.map(plain));
  return wanted.some((one) => known.has(plain(one)));
};

type Level = readonly [RoutedBy, (repository: LinearRepository) => boolean];

/** From what says most to what says least. */
function levels(issue: RoutedIssue | null): readonly Level[] {
  const { labels = [], project = null, team = null } = issue ?? {};
  const ofProject = project === null ? [] : [project.id, project.name];
  const ofTeam = team === null ? [] : [team.id, team.key];
  return [
    ['label', (one) => names(one.labels, labels)],
    ['project', (one) => names(one.projects, ofProject)],
    ['team', (one) => names(one.teams, ofTeam)],
    ['default', (one) => one.default],
  ];
}

/**
 * Decides for an issue: by label, then project, then team, then default. What leaves several
 * is narrowed by the next; what is left over after all is for a person to choose from.
 */
export function route(issue: RoutedIssue | null, { repositories, cwd }: Routing): Route {
  if (repositories.length === 0) return { kind: 'directory', cwd: cwd ?? null };
  const [lone] = repositories;
  if (lone && repositories.length === 1 && hasNoRule(lone)) return found(lone, 'only');
  let left = repositories;
  for (const [by, holds] of levels(issue)) {
    const matching = left.filter(holds);
    const [only] = matching;
    if (only && matching.length === 1) return found(only, by);
    if (matching.length > 0) left = matching;
  }
  return ask(left, repositories);
}

const hasNoRule = ({ labels, projects, teams }: LinearRepository): boolean =>
  labels.length + projects.length + teams.length === 0;

const found = (repository: LinearRepository, by: RoutedBy): Route => ({
  kind: 'repository',
  repository,
  by,
});

function ask(candidates: readonly LinearRepository[], all: readonly LinearRepository[]): Route {
  const options = candidates.map((one) => {
    const name = nameOf(one, all);
    return { label: name, value: name };
  });
  return { kind: 'ask', question: 'Which repository is this about?', options };
}

/** As much of the end of a path as tells it from the others; a machine's paths are nobody's business. */
function nameOf({ path }: LinearRepository, all: readonly LinearRepository[]): string {
  const parts = partsOf(path);
  for (let count = 1; count < parts.length; count++) {
    const name = parts.slice(-count).join('/');
    const same = all.filter(
      (other) => plain(partsOf(other.path).slice(-count).join('/')) === plain(name),
    );
    if (same.length === 1) return name;
  }
  return parts.length === 0 ? '/' : path;
}

const partsOf = (path: string): string[] => path.split('/').filter((part) => part !== '');

/**
 * The repository a person's answer names; null when it names none, or more than one. Takes the
 * name in any case, its number in the list, and a sentence around it.
 */
export function readAnswer(
  text: string,
  options: readonly RouteOption[],
  { repositories }: Routing,
): LinearRepository | null {
  const chosen = chosenOption(plain(text.replaceAll(/[`*"'“”‘’<>()[\].,;:!?]+/g, ' ')), options);
  if (chosen === null) return null;
  return repositories.find((one) => nameOf(one, repositories) === chosen.value) ?? null;
}

function chosenOption(answer: string, options: readonly RouteOption[]): RouteOption | null {
  if (answer === '') return null;
  const named = options.map((option) => ({ option, name: bare(option.value) }));
  const exact = named.filter(({ name }) => name === answer);
  if (exact.length > 0) return single(exact);
  const number = /^#?(\d{1,3})$/.exec(answer)?.[1];
  if (number !== undefined) return options[Number(number) - 1] ?? null;
  const said = named.filter(({ name }) => `-${answer}-`.includes(`-${name}-`));
  // Of "app" and "app-web" somebody who writes "app-web" means the latter.
  const whole = said.filter(
    ({ name }) => !said.some((other) => other.name !== name && other.name.includes(name)),
  );
  if (whole.length > 0) return single(whole);
  return answer.length < 2 ? null : single(named.filter(({ name }) => name.includes(answer)));
}

/** Without what is taken out of an answer, too. */
const bare = (name: string): string => plain(name.replaceAll(/[`*"'“”‘’<>()[\].,;:!?]+/g, ' '));

const single = (matches: readonly { readonly option: RouteOption }[]): RouteOption | null =>
  matches.length === 1 ? (matches[0]?.option ?? null) : null;
