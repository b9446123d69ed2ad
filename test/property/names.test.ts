import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  handleSchema,
  parseUnitName,
  type UnitIdentity,
  unitName,
  unitPattern,
  workspaceSchema,
} from '../../src/domain/names.ts';

const LETTERS = Array.from('abcdefghijklmnopqrstuvwxyz0123456789');
const letter = fc.constantFrom(...LETTERS);
const workspace = fc.string({ unit: letter, minLength: 1, maxLength: 32 });
const handle = fc.oneof(
  fc.string({ unit: letter, minLength: 1, maxLength: 64 }),
  fc
    .tuple(
      letter,
      fc.string({ unit: fc.constantFrom(...LETTERS, '-', '-'), maxLength: 62 }),
      letter,
    )
    .map((parts) => parts.join('')),
  // What looks most like a counter or a workspace of its own.
  fc.constantFrom('1', '0', '1-1', 'main-1', 'a--1', 'issue42', 'issue42-1', 'issue42-fix'),
);
const counter = fc.oneof(
  fc.integer({ min: 1, max: 200 }),
  fc.integer({ min: 1, max: 10 ** 15 - 1 }),
);
const identity: fc.Arbitrary<UnitIdentity> = fc.record({ workspace, handle, counter });

/** Matches as systemd's ListUnitsByPatterns does (fnmatch with a single star). */
const matches = (pattern: string, name: string): boolean => {
  const [head = '', tail = ''] = pattern.split('*');
  return name.length >= pattern.length - 1 && name.startsWith(head) && name.endsWith(tail);
};

describe('row 132: unit names', () => {
  it('lead back to exactly the work they were made of', () => {
    fc.assert(
      fc.property(identity, (work) => {
        expect(parseUnitName(unitName(work))).toEqual(work);
      }),
    );
  });

  it('differ whenever the work differs', () => {
    fc.assert(
      fc.property(identity, identity, (one, other) => {
        const same = canonical(one) === canonical(other);
        expect(unitName(one) === unitName(other)).toBe(same);
      }),
    );
  });

  it('are only ever parsed when unitName would have made them', () => {
    const pieces = fc.array(
      fc.oneof(
        fc.constantFrom(
          'outlive',
          'outlived',
          '-',
          '--',
          '.service',
          '.slice',
          '.',
          '@',
          '\n',
          ' ',
        ),
        fc.constantFrom('main', 'a', 'A', '0', '1', '01', '1e3', '10000000000000000', 'é', '_'),
        fc.string({ maxLength: 4 }),
      ),
      { maxLength: 10 },
    );
    fc.assert(
      fc.property(
        pieces.map((parts) => parts.join('')),
        (name) => {
          const parsed = parseUnitName(name);
          if (parsed !== null) expect(unitName(parsed)).toBe(name);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('are not parsed any more once one character is put in, taken out or replaced illegally', () => {
    const damage = fc.constantFrom(' ', '\n', '\0', 'A', '_', '/', '\\', '%', 'é', '.');
    fc.assert(
      fc.property(identity, damage, fc.nat(), (work, character, at) => {
        const name = unitName(work);
        const index = at % (name.length + 1);
        expect(parseUnitName(name.slice(0, index) + character + name.slice(index))).toBeNull();
      }),
    );
  });

  it('fit into what systemd takes for a unit name', () => {
    fc.assert(
      fc.property(identity, (work) => {
        // 255 characters of a limited alphabet: man systemd.unit.
        expect(unitName(work)).toMatch(/^[a-zA-Z0-9:_.\\-]{1,255}$/);
      }),
    );
  });

  it('are all listed by the pattern of their workspace and of no other', () => {
    fc.assert(
      fc.property(identity, workspace, (work, other) => {
        expect(matches(unitPattern(work.workspace), unitName(work))).toBe(true);
        expect(matches(unitPattern(other), unitName(work))).toBe(other === work.workspace);
      }),
    );
  });
});

describe('a handle that begins like another', () => {
  it('has other units: issue42 and issue42-fix never meet', () => {
    fc.assert(
      fc.property(workspace, handle, handle, counter, counter, (space, first, second, n, m) => {
        fc.pre(first !== second);
        const extended = `${first}-${second}`.slice(0, 64).replace(/-+$/, '');
        fc.pre(handleSchema.safeParse(extended).success && extended !== first);
        const short = unitName({ workspace: space, handle: first, counter: n });
        const long = unitName({ workspace: space, handle: extended, counter: m });
        expect(short).not.toBe(long);
        expect(parseUnitName(short)?.handle).toBe(first);
        expect(parseUnitName(long)?.handle).toBe(extended);
      }),
    );
  });
});

describe('the grammar of names', () => {
  it('takes every handle and workspace that the generators of this file make', () => {
    fc.assert(
      fc.property(identity, (work) => {
        expect(handleSchema.safeParse(work.handle).success).toBe(true);
        expect(workspaceSchema.safeParse(work.workspace).success).toBe(true);
      }),
    );
  });

  it('takes no workspace with a dash: the dash ends it in a unit name', () => {
    fc.assert(
      fc.property(workspace, workspace, (one, other) => {
        expect(workspaceSchema.safeParse(`${one}-${other}`).success).toBe(false);
      }),
    );
  });
});

function canonical({ workspace: space, handle: name, counter: n }: UnitIdentity): string {
  return JSON.stringify([space, name, n]);
}
