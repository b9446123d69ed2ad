/** /work-units/:id/artifacts and /artifacts/:id: what attempts left for people to read. */
import { Readable } from 'node:stream';
import type { FastifyPluginCallbackZod } from 'fastify-type-provider-zod';
import { OutliveError } from '../domain/errors.ts';
import type { ArtifactRow } from '../store/artifacts.ts';
import type { ApiContext, Streams } from './context.ts';
import { findWorkUnit } from './lookup.ts';
import { workUnitParamsSchema } from './schemas.ts';
import {
  type ArtifactPage,
  artifactPageSchema,
  artifactParamsSchema,
  artifactViewSchema,
} from './schemas-artifacts.ts';

function findArtifact({ store }: ApiContext, id: string): ArtifactRow {
  const row = store.artifacts.get(id);
  if (row) return row;
  throw new OutliveError(
    'not_found',
    `There is no artifact "${id}". Retention removes them with the events of their work unit.`,
  );
}

/** The same content; `cut` is called when its reader takes nothing for too long. */
function unstalled(content: Readable, { timers, stallMs }: Streams, cut: () => void): Readable {
  const pieces = async function* (): AsyncGenerator<Buffer, void> {
    for await (const piece of content) {
      // What comes after a piece is asked for once there is room, so once it is taken.
      const settle = timers.after(stallMs, cut);
      try {
        yield piece as Buffer;
      } finally {
        settle();
      }
    }
  };
  return Readable.from(pieces()).once('close', () => content.destroy());
}

const READ_SCHEMA = { params: artifactParamsSchema };

/** The routes of artifacts. */
export const artifactRoutes: FastifyPluginCallbackZod<{ context: ApiContext }> = (
  app,
  { context },
  done,
) => {
  app.get(
    '/work-units/:id/artifacts',
    {
      schema: {
        summary: 'Files that its ended attempts left to read',
        params: workUnitParamsSchema,
        response: { 200: artifactPageSchema },
      },
    },
    (request): ArtifactPage => {
      const { id } = findWorkUnit(context, request.params.id);
      return { items: context.store.artifacts.listByWorkUnit(id), nextCursor: null };
    },
  );
  app.get(
    '/artifacts/:id',
    {
      schema: { ...READ_SCHEMA, summary: 'One artifact', response: { 200: artifactViewSchema } },
    },
    (request) => findArtifact(context, request.params.id),
  );
  app.get(
    '/artifacts/:id/content',
    { schema: { ...READ_SCHEMA, summary: 'What an artifact holds, as text' } },
    async (request, reply) => {
      const artifact = findArtifact(context, request.params.id);
      const content = await context.supervisor.openArtifact(artifact);
      return reply
        .type('text/plain; charset=utf-8')
        .headers({
          'content-length': String(artifact.bytes),
          // What a run printed is nobody's page: it is shown as text or saved, and runs nothing.
          'x-content-type-options': 'nosniff',
          'content-security-policy': "default-src 'none'; sandbox",
          'content-disposition': `attachment; filename="${artifact.fileName}"`,
          'cache-control': 'private, no-store',
          etag: `"${artifact.sha256}"`,
        })
        .send(unstalled(content, context.streams, () => reply.raw.destroy()));
    },
  );
  done();
};
