/** What GraphQL cannot check, because it is JSON to it: activities, plans and links. */
import { invalid } from './refusals.ts';

export type Fields = Readonly<Record<string, unknown>>;

const FIELDS: Readonly<Record<string, { needs: readonly string[]; may: readonly string[] }>> = {
  thought: { needs: ['body'], may: [] },
  action: { needs: ['action', 'parameter'], may: ['result'] },
  elicitation: { needs: ['body'], may: [] },
  response: { needs: ['body'], may: [] },
  error: { needs: ['body'], may: [] },
};
const PASSING = ['thought', 'action'];
const PLAN_STATES = ['pending', 'inProgress', 'completed', 'canceled'];
const UUID_V4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;

export const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isText = (value: unknown): value is string =>
  typeof value === 'string' && value.trim() !== '';

/** @throws Refusal for whatever Linear would not take as an activity. */
export function checkActivity(input: Fields): void {
  const { id, content } = input;
  if (typeof id === 'string' && !UUID_V4.test(id)) {
    throw invalid('id must be a UUID of version 4');
  }
  if (!isObject(content)) throw invalid('content must be an object');
  const type = String(content['type']);
  if (type === 'prompt') throw invalid('an agent cannot create a prompt');
  const rule = FIELDS[type];
  if (rule === undefined) throw invalid(`content.type ${type} is not known`);
  checkFields(type, content, rule);
  if (input['ephemeral'] === true && !PASSING.includes(type)) {
    throw invalid(`an activity of type ${type} cannot be ephemeral`);
  }
  checkSignal(type, input);
}

function checkFields(
  type: string,
  content: Fields,
  rule: { needs: readonly string[]; may: readonly string[] },
): void {
  for (const field of rule.needs) {
    if (!isText(content[field])) throw invalid(`content.${field} of ${type} must not be empty`);
  }
  for (const [field, value] of Object.entries(content)) {
    if (field === 'type' || rule.needs.includes(field)) continue;
    if (!rule.may.includes(field)) throw invalid(`content.${field} is not a field of ${type}`);
    if (value !== null && value !== undefined && typeof value !== 'string') {
      throw invalid(`content.${field} must be a text`);
    }
  }
}

function checkSignal(type: string, input: Fields): void {
  const { signal, signalMetadata: metadata } = input;
  if (typeof signal !== 'string') return;
  if (signal !== 'auth' && signal !== 'select') throw invalid(`${signal} is a person's signal`);
  if (type !== 'elicitation') throw invalid(`the signal ${signal} belongs to an elicitation`);
  if (!isObject(metadata)) throw invalid(`the signal ${signal} needs signalMetadata`);
  if (signal === 'auth' && !isText(metadata['url'])) throw invalid('auth needs a url');
  if (signal !== 'select') return;
  const options = metadata['options'];
  if (!Array.isArray(options) || options.length === 0) throw invalid('select needs options');
  if (!options.every((option) => isObject(option) && isText(option['value']))) {
    throw invalid('each option of select needs a value');
  }
}

/** @throws Refusal for what Linear would not take as the news of a session. */
export function checkSessionUpdate(input: Fields): void {
  const { plan, summary } = input;
  if (plan !== undefined && plan !== null) checkPlan(plan);
  if (typeof summary === 'string' && !/^.{1,255}$/.test(summary)) {
    throw invalid('summary is one line of 1 to 255 characters');
  }
  for (const name of ['externalUrls', 'addedExternalUrls']) checkUrls(name, input[name]);
}

function checkPlan(plan: unknown): void {
  if (!Array.isArray(plan)) throw invalid('plan must be a list');
  for (const step of plan) {
    if (!isObject(step) || !isText(step['content'])) throw invalid('a step needs a content');
    if (!PLAN_STATES.includes(String(step['status']))) throw invalid('a step needs a known status');
  }
}

function checkUrls(name: string, links: unknown): void {
  if (links === undefined || links === null) return;
  const urls = (links as Fields[]).map((link) => String(link['url']));
  if (new Set(urls).size !== urls.length) throw invalid(`${name} names a url twice`);
  for (const url of urls) if (!URL.canParse(url)) throw invalid(`${name}: ${url} is not a url`);
}
