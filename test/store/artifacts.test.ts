/** Artifacts as an end commits them: with it or not at all, once, and of plain files only. */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  linkSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { ARTIFACT_FILES, ARTIFACT_MAX_BYTES } from '../../src/domain/artifacts.ts';
import { ATTEMPT_FILES, DIFF_CUT } from '../../src/domain/attempt-files.ts';
import type { AttemptRow } from '../../src/store/attempts.ts';
import { gatherArtifacts, openArtifact } from '../../src/supervisor/artifacts.ts';
import { conclude } from '../../src/supervisor/conclude.ts';
import type { Context } from '../../src/supervisor/context.ts';
import { end, evidence, lastWord } from '../property/evidence.ts';
import { QueueRig } from '../support/core-queue.ts';
import { cleanUp, open, raw, refusal, temporaryDirectory } from './rig.ts';

afterEach(cleanUp);

interface Lab {
  readonly rig: QueueRig;
  readonly context: Context;
  readonly id: string;
  readonly attempt: AttemptRow;
  readonly directory: string;
  /** The store's own. */
  readonly home: string;
}

/** A running attempt whose directory lies on the disk, with a launch file. */
function running(captureBytes = 1000): Lab {
  const home = temporaryDirectory();
  const rig = new QueueRig(open(home));
  const base = temporaryDirectory();
  const context: Context = {
    ...rig.context,
    settings: { ...rig.context.settings, attemptsDirectory: base },
  };
  const id = rig.submit();
  rig.claimAll();
  rig.run(id);
  const attempt = rig.active(id);
  const directory = path.join(base, id, attempt.id);
  mkdirSync(directory, { recursive: true });
  writeFileSync(path.join(directory, ATTEMPT_FILES.launch), JSON.stringify({ captureBytes }));
  return { rig, context, id, attempt, directory, home };
}

const put = ({ directory }: Lab, kind: keyof typeof ARTIFACT_FILES, text: string): string => {
  const file = path.join(directory, ARTIFACT_FILES[kind]);
  writeFileSync(file, text);
  return file;
};

async function concludeIt({ rig, context, attempt }: Lab): Promise<ReturnType<typeof conclude>> {
  const word = lastWord({ verdict: 'ok' });
  rig.store.write(() => rig.store.attempts.patch(attempt.id, { lastWord: word }));
  return conclude(context, attempt.id, {
    evidence: evidence({ lastWord: word, end: end('x exited 0') }),
    record: null,
    unusable: null,
    disagreement: null,
    loss: null,
    artifacts: await gatherArtifacts(context, attempt),
  });
}

const created = ({ rig, id }: Lab) =>
  rig.store.events
    .page(id, 0, 1000)
    .filter(({ type }) => type === 'artifact.created')
    .map(({ data }) => data);
const types = ({ rig, id }: Lab): string[] =>
  rig.store.events.page(id, 0, 1000).map(({ type }) => type);
const kinds = ({ rig, id }: Lab): string[] =>
  rig.store.artifacts.listByWorkUnit(id).map(({ kind }) => kind);

async function contentOf({ context }: Lab, id: string): Promise<string> {
  const row = context.store.artifacts.get(id);
  if (!row) throw new Error('there is no such artifact');
  const pieces: Buffer[] = [];
  for await (const piece of await openArtifact(context.settings, row)) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

describe('row 165: the artifacts of an attempt', () => {
  it('are stored with its end, one event each before it, with size, digest and what was cut', async () => {
    const lab = running();
    put(lab, 'stdout', 'out\n');
    put(lab, 'stderr', '');
    put(lab, 'transcript', 't'.repeat(1000));
    put(lab, 'diff', `+one\n${DIFF_CUT}there was no more time for git …]\n`);
    await concludeIt(lab);
    const rows = lab.rig.store.artifacts.listByWorkUnit(lab.id);
    expect(rows.map(({ kind, bytes, truncated }) => ({ kind, bytes, truncated }))).toEqual([
      { kind: 'stdout', bytes: 4, truncated: false },
      { kind: 'transcript', bytes: 1000, truncated: true },
      { kind: 'diff', bytes: expect.any(Number), truncated: true },
    ]);
    expect(rows[0]?.sha256).toBe(createHash('sha256').update('out\n').digest('hex'));
    expect(created(lab)).toEqual(
      rows.map(({ id, kind, fileName, bytes, truncated, sha256 }) => ({
        artifactId: id,
        kind,
        fileName,
        bytes,
        truncated,
        sha256,
      })),
    );
    const order = types(lab);
    expect(order.lastIndexOf('artifact.created')).toBeLessThan(order.indexOf('attempt.ended'));
    expect(await contentOf(lab, rows[0]?.id ?? '')).toBe('out\n');
  });

  it('are not there when the end is not, and the end is not when they are not', async () => {
    const lab = running();
    put(lab, 'stdout', 'out\n');
    put(lab, 'stderr', 'err\n');
    const db = raw(lab.home);
    db.exec(`CREATE TRIGGER broken BEFORE INSERT ON artifacts WHEN new.kind = 'stderr'
      BEGIN SELECT RAISE(ABORT, 'broken'); END`);
    await expect(concludeIt(lab)).rejects.toThrow('broken');
    expect(kinds(lab)).toEqual([]);
    expect(created(lab)).toEqual([]);
    expect(types(lab)).not.toContain('attempt.ended');
    expect(lab.rig.store.attempts.get(lab.attempt.id)?.status).toBe('started');
    db.exec('DROP TRIGGER broken');
    await concludeIt(lab);
    expect(kinds(lab)).toEqual(['stdout', 'stderr']);
    expect(await concludeIt(lab)).toBeNull();
    expect(created(lab)).toHaveLength(2);
  });

  it('cannot be stored twice for one attempt and kind', async () => {
    const lab = running();
    put(lab, 'stdout', 'out\n');
    await concludeIt(lab);
    const [row] = lab.rig.store.artifacts.listByWorkUnit(lab.id);
    if (!row) throw new Error('nothing was stored');
    const again = refusal(() => lab.rig.store.artifacts.insert({ ...row, id: 'another' }));
    expect(again.message).toContain('UNIQUE');
  });
});

describe('what lies in the place of an artifact', () => {
  const secret = (lab: Lab): string => {
    const file = path.join(lab.home, 'secret');
    writeFileSync(file, 'the secret itself');
    return file;
  };

  it.each([
    ['a link', (lab: Lab, file: string) => symlinkSync(secret(lab), file)],
    ['a second name of another file', (lab: Lab, file: string) => linkSync(secret(lab), file)],
    ['a directory', (_: Lab, file: string) => mkdirSync(file)],
    ['a FIFO nobody writes to', (_: Lab, file: string) => execFileSync('mkfifo', [file])],
    [
      'a file longer than the wrapper makes',
      (_: Lab, file: string) => {
        writeFileSync(file, '');
        truncateSync(file, ARTIFACT_MAX_BYTES + 1);
      },
    ],
  ])('%s is none, and the others are', async (_, plant) => {
    const lab = running();
    plant(lab, path.join(lab.directory, ARTIFACT_FILES.stdout));
    put(lab, 'stderr', 'err\n');
    await concludeIt(lab);
    expect(kinds(lab)).toEqual(['stderr']);
  });

  it.each([
    ['of its work unit', (lab: Lab) => path.dirname(lab.directory)],
    ['of its own', (lab: Lab) => lab.directory],
  ])('is not looked for over a link in the place of the directory %s', async (_, which) => {
    const lab = running();
    put(lab, 'stdout', 'out\n');
    const directory = which(lab);
    renameSync(directory, `${directory}.moved`);
    symlinkSync(`${directory}.moved`, directory);
    await concludeIt(lab);
    expect(kinds(lab)).toEqual([]);
  });

  it('is not read once it is another one than was stored', async () => {
    const lab = running();
    const file = put(lab, 'stdout', 'out\n');
    await concludeIt(lab);
    const [row] = lab.rig.store.artifacts.listByWorkUnit(lab.id);
    rmSync(file);
    await expect(contentOf(lab, row?.id ?? '')).rejects.toMatchObject({ code: 'artifact_gone' });
    symlinkSync(secret(lab), file);
    await expect(contentOf(lab, row?.id ?? '')).rejects.toMatchObject({ code: 'artifact_gone' });
    rmSync(file);
    writeFileSync(file, 'longer than it was\n');
    await expect(contentOf(lab, row?.id ?? '')).rejects.toMatchObject({ code: 'artifact_gone' });
  });
});
