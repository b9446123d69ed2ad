import { expect, test } from 'vitest';
import { takeListenFds } from '../../src/systemd/listen-fds.ts';

const PID = 4711;

function take(variables: Record<string, string>) {
  const env: Record<string, string | undefined> = { ...variables, HOME: '/home/me' };
  const reports: string[] = [];
  const handedOver = takeListenFds(env, PID, (problem) => reports.push(problem));
  return { handedOver, env, reports };
}

test('descriptors are told by the names of their sockets, from 3 on, in any order', () => {
  const { handedOver } = take({
    LISTEN_PID: String(PID),
    LISTEN_FDS: '3',
    LISTEN_FDNAMES: 'http:api:http',
  });
  expect(handedOver).toEqual({ api: [4], http: [3, 5] });
});

test('the variables are gone afterwards, and nothing else is', () => {
  for (const pid of [PID, PID + 1]) {
    const { env } = take({ LISTEN_PID: String(pid), LISTEN_FDS: '1', LISTEN_FDNAMES: 'api' });
    expect(env).toEqual({ HOME: '/home/me' });
  }
});

test.each([
  ['nothing was handed over', {}],
  ['they are another process’s', { LISTEN_PID: '1', LISTEN_FDS: '1', LISTEN_FDNAMES: 'api' }],
  ['there are none', { LISTEN_PID: String(PID), LISTEN_FDS: '0', LISTEN_FDNAMES: '' }],
  ['the count is none', { LISTEN_PID: String(PID), LISTEN_FDS: 'two', LISTEN_FDNAMES: 'api' }],
])('there is nothing to serve when %s', (_when, variables) => {
  const { handedOver, reports } = take(variables);
  expect(handedOver).toEqual({ api: [], http: [] });
  expect(reports).toEqual([]);
});

test('a socket of a name that nobody serves is told, and the others are served', () => {
  const { handedOver, reports } = take({
    LISTEN_PID: String(PID),
    LISTEN_FDS: '2',
    LISTEN_FDNAMES: 'metrics:api',
  });
  expect(handedOver).toEqual({ api: [4], http: [] });
  expect(reports).toEqual([expect.stringContaining('"metrics"')]);
});
