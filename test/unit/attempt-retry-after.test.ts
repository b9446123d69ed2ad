import { describe, expect, test } from 'vitest';
import { PiEvents } from '../../src/attempt/pi-events.ts';
import { resetOfHeaders, resetOfMessage } from '../../src/attempt/retry-after.ts';

const NOW = Date.parse('2026-01-02T03:04:05.000Z');
const S = 1_000;
const MIN = 60 * S;

describe('the words of an error', () => {
  test.each<[string, number | null]>([
    ['429: Rate limit reached. Please try again in 20s. Visit the docs.', 20 * S],
    ['429: Please try again in 6m0s.', 6 * MIN],
    ['Please try again in 1h2m3.5s', 62 * MIN + 3.5 * S],
    ['Please try again in 350ms', 350],
    ['You have hit your ChatGPT usage limit (plus plan). Try again in ~30 min.', 30 * MIN],
    ['Server requested 120s retry delay (max: 60s). 429: {"message":"slow down"}', 120 * S],
    ['429: {"error":{"details":[{"retryDelay":"34s"}]}}', 34 * S],
    ['Rate limited, retry after 12 seconds', 12 * S],
    ['503: {"retry_after": 1.5}', 1.5 * S],
    ['Retry-After: 30', 30 * S],
    ['429: {"type":"usage_limit_reached","resets_in_seconds":7200}', 120 * MIN],
    [`429: {"resets_at":${(NOW + 90 * MIN) / S}}`, 90 * MIN],
    [`usage limit, resets at ${new Date(NOW + 5 * MIN).toISOString()}`, 5 * MIN],
    ['429: {"message":"scripted 429","type":"requests"}', null],
    ['503: overloaded', null],
    ['the context has 128000 tokens, 5 s ago', null],
    ['resets at 2020-01-01T00:00:00Z', null],
    [`{"resets_at":9999999999999}`, null],
    ['', null],
  ])('%s', (message, delay) => {
    expect(resetOfMessage(message, NOW)).toBe(delay === null ? null : Math.ceil(NOW + delay));
  });
});

describe('headers', () => {
  test.each<[Record<string, unknown>, number | null]>([
    [{ 'retry-after': '77' }, 77 * S],
    [{ 'retry-after': '0' }, 0],
    [{ 'retry-after-ms': '1500', 'retry-after': '77' }, 1_500],
    [{ 'retry-after': new Date(NOW + 3 * MIN).toUTCString() }, 3 * MIN],
    [{ 'retry-after': 'Thu, 01 Jan 1970 00:00:00 GMT' }, null],
    [{ 'retry-after': 'soon' }, null],
    [{ 'retry-after': 5 }, null],
    [{ 'retry-after': '99999999999' }, null],
    [{}, null],
  ])('%j', (headers, delay) => {
    expect(resetOfHeaders(headers, NOW)).toBe(delay === null ? null : NOW + delay);
  });
});

test('the notice of a failed answer is no line for a person', () => {
  const told = { status: 429, headers: { 'retry-after': '7' } };
  const message = `outlive:provider-answer ${JSON.stringify(told)}`;
  const notice = { type: 'extension_ui_request', id: '1', method: 'notify', message };
  expect(new PiEvents().next(notice)).toEqual([
    { kind: 'failed_answer', headers: { 'retry-after': '7' } },
  ]);
  expect(new PiEvents().next({ ...notice, message: 'hello' })).toMatchObject([
    { kind: 'progress', data: { kind: 'notice', message: 'hello' } },
  ]);
});
