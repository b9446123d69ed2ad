/** /openapi.json and /docs: the API tells what it is. */
import type { FastifyInstance, FastifyPluginCallback } from 'fastify';
import { docsPage } from './docs-page.ts';
import { type OpenApi, openApi, type Route } from './openapi.ts';

/** Notes every route that is registered after this call, but for refusals. */
export function collectRoutes(app: FastifyInstance): readonly Route[] {
  const routes: Route[] = [];
  app.addHook('onRoute', ({ method, url, schema, config }) => {
    if (config?.isHidden === true) return;
    for (const one of [method].flat()) {
      if (one !== 'HEAD') routes.push({ method: one, url, schema: schema ?? {} });
    }
  });
  return routes;
}

/** The routes of the document. It is made once, at the first request. */
export const documentRoutes: FastifyPluginCallback<{
  routes: readonly Route[];
  version: string;
}> = (app, { routes, version }, done) => {
  let made: OpenApi | null = null;
  const document = (): OpenApi => {
    made ??= openApi(routes, version);
    return made;
  };
  app.get('/openapi.json', { schema: { summary: 'This API as OpenAPI 3.1' } }, () => document());
  app.get('/docs', { schema: { summary: 'This API as a page to read' } }, (_request, reply) =>
    reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'")
      .send(docsPage(document())),
  );
  done();
};
