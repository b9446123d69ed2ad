/** What is found in texts and arguments of a run and belongs elsewhere in Linear. Pure. */
import type { SessionUpdate } from './port.ts';
import { clean, isBlank, oneLine } from './text.ts';

export interface Link {
  readonly label: string;
  readonly url: string;
}

// GitHub's, on any host, and GitLab's merge requests, whose groups may be nested.
const PULL_REQUEST =
  /https:\/\/([a-z0-9.-]+(?::\d+)?)\/([\w.-]+\/[\w.-]+)\/pull\/(\d{1,9})(?!\d)|https:\/\/([a-z0-9.-]+(?::\d+)?)\/([\w.-]+(?:\/[\w.-]+){1,8})\/-\/merge_requests\/(\d{1,9})(?!\d)/giu;
const LABEL_LENGTH = 100;
const URL_LENGTH = 400;

/** Links to pull requests in a text, each once, in their order. */
export function pullRequestsIn(text: string): Link[] {
  const links = new Map<string, Link>();
  for (const [url, , repository, number, , project, request] of text.matchAll(PULL_REQUEST)) {
    if (url.length > URL_LENGTH) continue;
    const label = project === undefined ? `${repository}#${number}` : `${project}!${request}`;
    links.set(url, { url, label: oneLine(label, LABEL_LENGTH) });
  }
  return [...links.values()];
}

type Plan = NonNullable<SessionUpdate['plan']>;

const PLAN_TOOL = /^(?:todos?|todo_?(?:write|list|update)|update_?plan|plan)$/i;
const LISTS = ['todos', 'plan', 'items', 'steps', 'tasks', 'list'];
const WORDS = ['content', 'text', 'step', 'title', 'task', 'description', 'name'];
const STEPS = 50;
const STEP_LENGTH = 200;

const STATUSES: Readonly<Record<string, Plan[number]['status']>> = {
  inprogress: 'inProgress',
  active: 'inProgress',
  doing: 'inProgress',
  current: 'inProgress',
  completed: 'completed',
  complete: 'completed',
  done: 'completed',
  canceled: 'canceled',
  cancelled: 'canceled',
  skipped: 'canceled',
};

type Fields = Readonly<Record<string, unknown>>;
const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function statusOf(step: Fields): Plan[number]['status'] {
  if (step['done'] === true || step['completed'] === true) return 'completed';
  const word = [step['status'], step['state']].find((one) => typeof one === 'string');
  const key = (word ?? '').toLowerCase().replaceAll(/[^a-z]/g, '');
  return Object.hasOwn(STATUSES, key) ? (STATUSES[key] ?? 'pending') : 'pending';
}

function stepOf(value: unknown): Plan[number] | null {
  const fields = isFields(value) ? value : { content: value };
  const text = WORDS.map((word) => fields[word]).find((one) => typeof one === 'string');
  const content = oneLine(clean(String(text ?? '')), STEP_LENGTH);
  return isBlank(content) ? null : { content, status: statusOf(fields) };
}

/** The whole plan that a call of a to-do tool writes, null for any other call. */
export function planOf(tool: string, given: unknown): Plan | null {
  if (!PLAN_TOOL.test(tool) || !isFields(given)) return null;
  const list = LISTS.map((name) => given[name]).find(Array.isArray) as unknown[] | undefined;
  const steps = list?.slice(0, STEPS).map(stepOf);
  const plan = steps?.filter((step): step is Plan[number] => step !== null) ?? [];
  return plan.length === 0 ? null : plan;
}
