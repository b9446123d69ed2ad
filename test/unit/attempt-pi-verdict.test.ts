import { expect, test } from 'vitest';
import { classifyError, classifyStartFailure, verdictOf } from '../../src/attempt/pi-verdict.ts';

test.each([
  ['401: {"message":"Incorrect API key provided"}', 'provider_auth'],
  ['403: {"message":"rate limit of your region"}', 'provider_auth'],
  ['No API key found for lab.\n\nUse /login', 'provider_auth'],
  ['No model selected.', 'provider_auth'],
  ['Failed to resolve API key for provider "lab" from shell command', 'provider_auth'],
  ['OAuth token refresh failed', 'provider_auth'],
  ['429: {"message":"Too many requests"}', 'rate_limited'],
  ['429 {"error":{"code":"insufficient_quota"}}', 'rate_limited'],
  ['ThrottlingException: Too many tokens, please wait before trying again.', 'rate_limited'],
  ['500: {"message":"scripted 500","type":"server_error"}', 'provider_unavailable'],
  ['503 upstream prompt is too long', 'provider_unavailable'],
  ['529 overloaded', 'provider_unavailable'],
  ['Connection error.: other side closed (UND_ERR_SOCKET)', 'provider_unavailable'],
  ['connect ECONNREFUSED 127.0.0.1:1', 'provider_unavailable'],
  ['Request timed out.', 'provider_unavailable'],
  ['terminated', 'provider_unavailable'],
  ['400: prompt is too long: 213462 tokens > 200000 maximum', 'context_overflow'],
  ['413 {"error":{"type":"request_too_large"}}', 'context_overflow'],
  ["This model's maximum context length is 8192 tokens", 'context_overflow'],
  ['Context overflow recovery failed after one compact-and-retry attempt.', 'context_overflow'],
  ['ENOSPC: no space left on device, write', 'disk_full'],
  ['EDQUOT: disk quota exceeded, write', 'disk_full'],
  ['500: no space left on device', 'provider_unavailable'],
  ['400: unknown parameter', 'model_error'],
  ['404: no such model', 'model_error'],
  ['the model is sad', 'model_error'],
  ['', 'model_error'],
  ['job 4290 of 5003 failed oddly', 'model_error'],
])('%j is %s', (message, code) => {
  expect(classifyError(message)).toBe(code);
});

test.each([
  ['stop', false, null],
  ['toolUse', false, null],
  ['stop', true, 'aborted'],
  ['length', false, 'output_limit'],
  ['aborted', true, 'aborted'],
  ['error', false, 'model_error'],
  ['deferred', false, 'model_error'],
])('stop reason %s (aborted: %s) is %s', (stopReason, aborted, code) => {
  expect(verdictOf({ stopReason, errorMessage: null }, aborted)).toMatchObject({ code });
});

test('settled without any message is no result, and never a success', () => {
  expect(verdictOf(null, false)).toMatchObject({ code: 'runner_no_result' });
  expect(verdictOf(null, true)).toMatchObject({ code: 'aborted' });
});

test.each([
  ['Error: Stored session working directory does not exist: /gone', 'cwd_missing'],
  ['Failed to resolve API key for provider "x" from shell command', 'provider_auth'],
  ['Error: ENOSPC: no space left on device, mkdir /x', 'disk_full'],
  ['Error: not a valid pi session', 'runner_error'],
  ['', 'runner_error'],
])('a start that fails with %j is %s', (stderr, code) => {
  expect(classifyStartFailure(stderr)).toBe(code);
});
