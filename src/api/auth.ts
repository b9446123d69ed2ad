/** Who may use the TCP listener: holders of the token, from our own Host and Origin. */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { OutliveError } from '../domain/errors.ts';

export const TOKEN_FILE = 'api-token';

/** The token of this workspace, made at first use; file 0600 in a directory 0700. */
export function loadToken(directory: string): string {
  const file = path.join(directory, TOKEN_FILE);
  try {
    const token = readFileSync(file, 'utf8').trim();
    chmodSync(file, 0o600); // A copy or a restored backup may have opened it.
    if (token.length >= 32) return token;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const token = randomBytes(32).toString('base64url');
  writeFileSync(`${file}.new`, `${token}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
  return token;
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Compares digests, so that neither content nor length shows in the time it takes. */
const sameSecret = (a: string, b: string): boolean => timingSafeEqual(digest(a), digest(b));

function isLocalHost(host: string | undefined, port: number): boolean {
  return (
    host !== undefined && [`127.0.0.1:${port}`, `localhost:${port}`].includes(host.toLowerCase())
  );
}

function isOwnOrigin(origin: string | undefined, port: number): boolean {
  if (origin === undefined) return true; // Not a browser's cross-site request.
  return [`http://127.0.0.1:${port}`, `http://localhost:${port}`].includes(origin.toLowerCase());
}

/** A route that checks its senders itself, and is there for everybody else's machines. */
export const isSignedRoute = (request: FastifyRequest): boolean =>
  request.routeOptions.config.isSigned === true;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Behind no token, Host or Origin check, and behind no gate: its handler refuses. */
    isSigned?: boolean;
    /** Nothing that anybody would look for in the document. */
    isHidden?: boolean;
  }
}

/**
 * Guards every route of a TCP listener, but those that are signed. Host and Origin are checked first: a page that
 * rebinds DNS to us, or posts across sites, is refused whatever token it holds.
 */
export function guardTcp(app: FastifyInstance, token: () => string, port: () => number): void {
  app.addHook('onRequest', (request, _reply, done) => {
    if (isSignedRoute(request)) {
      done();
      return;
    }
    const { host, origin, authorization } = request.headers;
    if (!isLocalHost(host, port()) || !isOwnOrigin(origin, port())) {
      done(
        new OutliveError(
          'forbidden_origin',
          'Use http://127.0.0.1 or localhost, from a page of this address or none.',
        ),
      );
      return;
    }
    const given = /^Bearer (\S+)$/i.exec(authorization ?? '')?.[1];
    if (given === undefined || !sameSecret(given, token())) {
      done(
        new OutliveError(
          'unauthorized',
          `Send "Authorization: Bearer <token>"; the token is in the file ${TOKEN_FILE} of the workspace's state directory.`,
        ),
      );
      return;
    }
    done();
  });
}
