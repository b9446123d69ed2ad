import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Answer, post, problem, send } from '../support/api-http.ts';
import { bootApi, cleanUp, type Rig } from '../support/api-rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await bootApi();
});
afterAll(cleanUp);

/** Any text, also unpaired surrogates, control characters and very long ones. */
const text = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc
    .array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 20 })
    .map((units) => String.fromCharCode(...units)),
  fc.constantFrom('', ' ', '\0', '\ud800', '__proto__', 'null', '/', '/tmp', 'a'.repeat(5_000)),
);

const number = fc.oneof(
  fc.integer(),
  fc.double(),
  fc.constantFrom(-0, 1e308, Number.MAX_SAFE_INTEGER + 2, -1001, 1001, 0.1),
);

const anything = fc.oneof(
  text,
  number,
  fc.boolean(),
  fc.constant(null),
  fc.jsonValue({ maxDepth: 4 }),
  fc.array(text, { maxLength: 5 }),
);

/** Mostly what the field wants, sometimes anything at all. */
const mostly = <Value>(right: fc.Arbitrary<Value>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 20, arbitrary: right }, { weight: 1, arbitrary: anything });

const body = fc
  .tuple(
    fc.record(
      {
        runnerId: mostly(fc.constantFrom('pi', 'command')),
        ownerId: mostly(fc.oneof(fc.constantFrom('ada', 'bob'), text)),
        ownerType: mostly(fc.constantFrom('user', 'bot')),
        kind: mostly(fc.constantFrom('task_run', 'media_job')),
        handle: mostly(fc.stringMatching(/^[a-z0-9][a-z0-9-]{0,8}[a-z0-9]$/)),
        cwd: mostly(fc.constantFrom('/', '/tmp', '/nowhere')),
        prompt: mostly(text),
        argv: mostly(fc.array(text, { minLength: 1, maxLength: 4 })),
        model: mostly(fc.constant('a/b')),
        priority: mostly(fc.integer({ min: -1000, max: 1000 })),
        // With false it is claimed at once, and this API has nobody to start it.
        queueOnConflict: mostly(fc.constant(true)).filter((value) => value !== false),
        idempotencyKey: mostly(text),
        createdByClientId: mostly(text),
        timeoutPolicy: mostly(
          fc.record({ hardTimeoutMs: mostly(fc.integer({ min: 1_000 })) }, { requiredKeys: [] }),
        ),
      },
      { requiredKeys: [] },
    ),
    fc.oneof(
      { weight: 5, arbitrary: fc.constant({}) },
      { weight: 1, arbitrary: fc.dictionary(fc.string(), anything, { maxKeys: 3 }) },
    ),
    fc.constantFrom('all', 'pi', 'command'),
  )
  .map(([fields, more, shape]) => {
    const { prompt, argv, model, ...common } = fields;
    if (shape === 'pi') return { ...common, runnerId: 'pi', prompt: prompt ?? 'p', model, ...more };
    if (shape === 'command')
      return { ...common, runnerId: 'command', argv: argv ?? ['a'], ...more };
    return { ...fields, ...more };
  });

/** What every answer to a POST must keep. */
function check(answer: Answer, before: ReturnType<Rig['counts']>): void {
  expect(answer.status, answer.text).toBeLessThan(500);
  const made = answer.status === 201 ? 1 : 0;
  expect(rig.counts()).toEqual({
    ...before,
    work_units: (before['work_units'] ?? 0) + made,
    runtime_events: (before['runtime_events'] ?? 0) + 2 * made,
    // What it needs is stored with it, as many rows as the request says.
    work_unit_needs: expect.any(Number),
    channels: expect.any(Number),
  });
  if (answer.status < 300) return;
  const { status, errors, detail } = problem(answer);
  expect(detail).not.toBe('');
  expect(status === 422 && errors.length === 0, 'invalid without a field').toBe(false);
  expect(errors.filter(({ path }) => !path.startsWith('/'))).toEqual([]);
}

describe('POST /work-units under any JSON', () => {
  it('never fails by its own mistake, and writes only what it accepts', async () => {
    const statuses = new Map<number, number>();
    await fc.assert(
      fc.asyncProperty(body, async (request) => {
        const before = rig.counts();
        const answer = await post(rig.socket, request);
        statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
        check(answer, before);
      }),
      { numRuns: 600 },
    );
    // Else the generator would prove nothing about one of the two.
    expect(statuses.get(201) ?? 0).toBeGreaterThan(10);
    expect(statuses.get(422) ?? 0).toBeGreaterThan(10);
  });

  it('never fails on JSON that is no request at all', async () => {
    await fc.assert(
      fc.asyncProperty(fc.json({ maxDepth: 6 }), async (request) => {
        const before = rig.counts();
        check(await post(rig.socket, request), before);
      }),
      { numRuns: 200 },
    );
  });

  it('never fails on bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), async (bytes) => {
        const before = rig.counts();
        const answer = await post(rig.socket, Buffer.from(bytes));
        expect(answer.status).toBeGreaterThanOrEqual(400);
        check(answer, before);
      }),
      { numRuns: 200 },
    );
  });

  it('never fails on a good request with one byte changed', async () => {
    const good = Buffer.from(
      JSON.stringify({
        runnerId: 'command',
        ownerId: 'ada',
        argv: ['a', 'b'],
        cwd: '/',
        priority: 1,
      }),
    );
    await fc.assert(
      fc.asyncProperty(fc.nat(good.length - 1), fc.nat(255), async (at, byte) => {
        const bytes = Buffer.from(good);
        bytes[at] = byte;
        const before = rig.counts();
        check(await post(rig.socket, bytes), before);
      }),
      { numRuns: 300 },
    );
  });

  it('is read back as it was accepted', async () => {
    const accepted = fc.record({
      ownerId: fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme' }),
      prompt: fc.string({ minLength: 1, unit: 'binary' }).filter((value) => value.trim() !== ''),
      priority: fc.integer({ min: -1000, max: 1000 }),
    });
    await fc.assert(
      fc.asyncProperty(accepted, async (fields) => {
        const answer = await post(rig.socket, { runnerId: 'pi', cwd: '/', ...fields });
        expect(answer.status, answer.text).toBe(201);
        const { id } = JSON.parse(answer.text) as { id: string };
        const row = rig.store.workUnits.get(id);
        expect(row?.request.prompt).toBe(fields.prompt);
        expect([row?.ownerId, row?.priority]).toEqual([fields.ownerId, fields.priority]);
      }),
      { numRuns: 100 },
    );
  });
});

describe('every GET under any path and query', () => {
  it('never fails by its own mistake, and writes nothing', async () => {
    const piece = fc.oneof(
      fc.string({ maxLength: 20 }).map((value) => {
        try {
          return encodeURIComponent(value);
        } catch {
          return '%ED%A0%80';
        }
      }),
      fc.constantFrom('work-units', 'events', 'runtime', 'x', '%', '%zz', '..', '.', '*', ':id'),
    );
    const query = fc.constantFrom(
      ...['', '?', '?limit=1', '?cursor=x', '?afterSeq=99', '?limit=1&limit=2', '?a[b]=c', '?%'],
    );
    const before = rig.counts();
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 4 }), query, async (pieces, search) => {
        const answer = await send(rig.socket, { path: `/${pieces.join('/')}${search}` });
        expect(answer.status, answer.text).toBeLessThan(500);
        if (answer.status >= 400) problem(answer);
      }),
      { numRuns: 400 },
    );
    expect(rig.counts()).toEqual(before);
  });
});
