/** One request on a connection of its own, and what became of it. */
import http from 'node:http';

export type Knock =
  | { readonly kind: 'answered'; readonly status: number; readonly body: string }
  /** Nobody listened. */
  | { readonly kind: 'refused'; readonly code: string }
  /** Somebody took the connection and dropped it. */
  | { readonly kind: 'cut'; readonly code: string };

const REFUSED: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOENT', 'EAGAIN']);

/** GET `path`, on a unix socket or with a token on a port. */
export function knock(
  where: { readonly socketPath: string } | { readonly port: number; readonly token: string },
  path = '/runtime',
): Promise<Knock> {
  const to =
    'port' in where
      ? {
          host: '127.0.0.1',
          port: where.port,
          headers: { authorization: `Bearer ${where.token}` },
        }
      : where;
  return new Promise((resolve) => {
    const request = http.get({ ...to, path, agent: false }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      response.on('error', ({ code = '' }: NodeJS.ErrnoException) =>
        resolve({ kind: 'cut', code }),
      );
      response.on('end', () =>
        resolve({ kind: 'answered', status: response.statusCode ?? 0, body }),
      );
    });
    request.on('error', ({ code = '' }: NodeJS.ErrnoException) =>
      resolve({ kind: REFUSED.has(code) ? 'refused' : 'cut', code }),
    );
  });
}
