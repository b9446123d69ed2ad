/** Artifacts over HTTP: listed, told, streamed as text, and gone with retention. */

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import {
  type ArtifactPage,
  type ArtifactView,
  artifactPageSchema,
  artifactViewSchema,
} from '../../src/api/schemas-artifacts.ts';
import { createClient } from '../../src/client/client.ts';
import { ARTIFACT_FILES, type ArtifactKind } from '../../src/domain/artifacts.ts';
import { shortId, uuidv7 } from '../../src/domain/ids.ts';
import { sweep } from '../../src/recovery/sweep.ts';
import { createClaimer } from '../../src/supervisor/claim.ts';
import { json, refused, send, start } from '../support/api-http.ts';
import { atTheEnd, bootApi, cleanUp, type Rig, STALL_MS } from '../support/api-rig.ts';
import { ManualTimers } from '../unit/systemd-manual-timers.ts';

afterEach(cleanUp);

const PAST = '2026-01-02T03:04:05.678Z';

interface Planted {
  readonly id: string;
  readonly directory: string;
  readonly artifacts: readonly ArtifactView[];
}

/** An ended work unit with these artifacts, rows and files. */
async function plant(
  rig: Rig,
  texts: Partial<Record<ArtifactKind, string | Buffer>>,
): Promise<Planted> {
  const { id } = await start(rig.socket, { handle: 'issue42' });
  const { claim } = createClaimer(rig.inner)();
  if (!claim) throw new Error('nothing was claimed');
  const { attempt } = claim;
  const directory = path.join(rig.inner.settings.attemptsDirectory, id, attempt.id);
  mkdirSync(directory, { recursive: true });
  rig.store.write(() => {
    for (const [kind, text] of Object.entries(texts) as [ArtifactKind, string | Buffer][]) {
      writeFileSync(path.join(directory, ARTIFACT_FILES[kind]), text);
      rig.store.artifacts.insert({
        id: uuidv7(rig.inner.entropy),
        workUnitId: id,
        attemptId: attempt.id,
        kind,
        fileName: ARTIFACT_FILES[kind],
        bytes: Buffer.byteLength(text),
        truncated: false,
        sha256: createHash('sha256').update(text).digest('hex'),
        createdAt: PAST,
      });
    }
    rig.store.attempts.move(attempt, 'succeeded', { endedAt: PAST });
    const workUnit = rig.store.workUnits.get(id);
    if (!workUnit) throw new Error('gone');
    const ended = { endedAt: PAST, activeAttemptId: null };
    rig.store.workUnits.move(workUnit, 'succeeded', ended, PAST);
  });
  const answer = await send(rig.socket, { path: `/work-units/${id}/artifacts` });
  return { id, directory, artifacts: artifactPageSchema.parse(json<ArtifactPage>(answer)).items };
}

describe('GET /work-units/:id/artifacts', () => {
  it('lists those of all attempts, by id and by handle, and none of work without', async () => {
    const rig = await bootApi();
    const { id, artifacts } = await plant(rig, { diff: '+one\n', stdout: 'out\n' });
    expect(artifacts.map(({ kind, bytes, attemptNumber }) => [kind, bytes, attemptNumber])).toEqual(
      [
        ['stdout', 4, 1],
        ['diff', 5, 1],
      ],
    );
    expect(artifacts[0]?.workUnitId).toBe(id);
    const byHandle = await send(rig.socket, { path: '/work-units/issue42/artifacts' });
    expect(json<ArtifactPage>(byHandle).items).toEqual(artifacts);
    await start(rig.socket, { handle: 'other' });
    const none = await send(rig.socket, { path: '/work-units/other/artifacts' });
    expect(json<ArtifactPage>(none)).toEqual({ items: [], nextCursor: null });
    expect(refused(await send(rig.socket, { path: '/work-units/nobody/artifacts' }))).toMatchObject(
      { status: 404, code: 'not_found' },
    );
  });
});

describe('GET /artifacts/:id', () => {
  it('tells one, as the list does', async () => {
    const rig = await bootApi();
    const { artifacts } = await plant(rig, { stderr: 'err\n' });
    const answer = await send(rig.socket, { path: `/artifacts/${artifacts[0]?.id}` });
    expect(artifactViewSchema.parse(json<ArtifactView>(answer))).toEqual(artifacts[0]);
    expect(refused(await send(rig.socket, { path: '/artifacts/none' }))).toMatchObject({
      status: 404,
      code: 'not_found',
    });
  });
});

describe('GET /artifacts/:id/content', () => {
  it('is the file byte for byte, as text that no browser takes for anything else', async () => {
    const rig = await bootApi();
    const text = `<script>alert(1)</script>\n${'ü'.repeat(200_000)}`;
    const { artifacts } = await plant(rig, { stdout: text });
    const answer = await send(rig.socket, { path: `/artifacts/${artifacts[0]?.id}/content` });
    expect(answer.status).toBe(200);
    expect(answer.text).toBe(text);
    expect(answer.headers).toMatchObject({
      'content-type': 'text/plain; charset=utf-8',
      'content-length': String(Buffer.byteLength(text)),
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'; sandbox",
      'content-disposition': 'attachment; filename="stdout.log"',
      etag: `"${artifacts[0]?.sha256}"`,
    });
    const head = await send(rig.socket, {
      method: 'HEAD',
      path: `/artifacts/${artifacts[0]?.id}/content`,
    });
    expect([head.status, head.text]).toEqual([200, '']);
  });

  it('needs the token over TCP, like everything', async () => {
    const rig = await bootApi();
    const { artifacts } = await plant(rig, { stdout: 'out\n' });
    const call = { path: `/artifacts/${artifacts[0]?.id}/content` };
    expect((await send(rig.tcp, call)).text).toBe('out\n');
    expect((await send({ port: rig.tcp.port }, call)).status).toBe(401);
  });

  it('is refused, typed, when its file is gone, and there is none once retention was there', async () => {
    const rig = await bootApi({}, { policy: { maxAgeMs: 1, budgetBytes: null }, intervalMs: 1e9 });
    const { id, directory, artifacts } = await plant(rig, { stdout: 'out\n', diff: '+a\n' });
    const [stdout, diff] = artifacts;
    rmSync(path.join(directory, ARTIFACT_FILES.stdout));
    expect(
      refused(await send(rig.socket, { path: `/artifacts/${stdout?.id}/content` })),
    ).toMatchObject({ status: 404, code: 'artifact_gone' });
    const collected = await send(rig.socket, { path: '/maintenance/gc', body: {} });
    expect(collected.status, collected.text).toBe(200);
    expect(existsSync(directory)).toBe(false);
    for (const rest of ['', '/content']) {
      expect(
        refused(await send(rig.socket, { path: `/artifacts/${diff?.id}${rest}` })),
      ).toMatchObject({ status: 404, code: 'not_found' });
    }
    const left = await send(rig.socket, { path: `/work-units/${id}/artifacts` });
    expect(json<ArtifactPage>(left).items).toEqual([]);
    expect(rig.counts()['artifacts']).toBe(0);
  });

  it('is cut off for a reader that takes nothing', async () => {
    const timers = new ManualTimers();
    const rig = await bootApi({}, undefined, timers);
    const { artifacts } = await plant(rig, { stdout: Buffer.alloc(16 * 1024 * 1024, 'x') });
    const accepted = once(rig.listeners.socket.app.server, 'connection') as Promise<[net.Socket]>;
    const reader = net.connect(rig.socketPath);
    atTheEnd(() => void reader.destroy());
    reader.pause();
    reader.write(`GET /artifacts/${artifacts[0]?.id}/content HTTP/1.0\r\nHost: x\r\n\r\n`);
    const [served] = await accepted;
    const closed = once(served, 'close');
    while (!served.writableNeedDrain) await pause(5);
    await timers.pass((ms) => ms === STALL_MS);
    await closed;
    expect(served.destroyed).toBe(true);
  });
});

describe('temporary files', () => {
  const put = (rig: Rig, name: string): string => {
    const file = path.join(rig.inner.settings.temporaryDirectory, name, 'pi-bash-1.log');
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, 'x');
    return file;
  };

  it('that a daemon which died left behind go at the next start, those of live runs stay', async () => {
    const rig = await bootApi();
    const { artifacts } = await plant(rig, { stdout: 'out\n' });
    await start(rig.socket, { handle: 'live' });
    const { claim } = createClaimer(rig.inner)();
    const ended = put(rig, shortId(artifacts[0]?.attemptId ?? ''));
    const live = put(rig, shortId(claim?.attempt.id ?? ''));
    const unknown = put(rig, 'of-nobody');
    await sweep(rig.inner);
    expect([ended, live, unknown].map((file) => existsSync(file))).toEqual([false, true, true]);
  });

  it('of nobody go with retention once they are old, those of a live run never', async () => {
    const rig = await bootApi({}, { policy: { maxAgeMs: 1, budgetBytes: null }, intervalMs: 1e9 });
    await start(rig.socket, { handle: 'live' });
    const { claim } = createClaimer(rig.inner)();
    const live = put(rig, shortId(claim?.attempt.id ?? ''));
    const nobodys = put(rig, 'of-nobody');
    for (const file of [live, nobodys, path.dirname(live), path.dirname(nobodys)])
      utimesSync(file, 1, 1);
    const answer = await send(rig.socket, { path: '/maintenance/gc', body: {} });
    expect(json<{ problems: string[] }>(answer).problems).toEqual([]);
    expect([live, nobodys].map((file) => existsSync(file))).toEqual([true, false]);
  });
});

describe('the client', () => {
  it('lists, and reads in pieces what it was told of', async () => {
    const rig = await bootApi();
    const { artifacts } = await plant(rig, { transcript: 'a'.repeat(300_000) });
    const client = createClient({ socketPath: rig.socketPath });
    expect((await client.artifacts('issue42')).items).toEqual(artifacts);
    const pieces: Buffer[] = [];
    for await (const piece of client.artifactContent(artifacts[0]?.id ?? '')) pieces.push(piece);
    expect(Buffer.concat(pieces).toString()).toBe('a'.repeat(300_000));
    await expect(client.artifactContent('none').next()).rejects.toMatchObject({
      code: 'not_found',
    });
  });
});
