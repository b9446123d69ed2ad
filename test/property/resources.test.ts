/** Which leases exclude each other: paths nest, everything else is by name. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LEASE_TYPES, leasesConflict, pathCovers } from '../../src/domain/resources.ts';

/** Few and short names, so that paths often nest, and one that is the start of another. */
const segments = fc.array(fc.constantFrom('a', 'b', 'ab', 'a b', '..a'), { maxLength: 4 });
const toPath = (parts: readonly string[]): string => `/${parts.join('/')}`;
const lease = fc.record({ type: fc.constantFrom(...LEASE_TYPES), key: segments.map(toPath) });

describe('pathCovers', () => {
  it('is what comparing whole segments says: /repo covers /repo/sub and never /repo2', () => {
    fc.assert(
      fc.property(segments, segments, (outer, inner) => {
        const nested = outer.every((part, index) => inner[index] === part);
        expect(pathCovers(toPath(outer), toPath(inner))).toBe(nested);
      }),
    );
  });

  it('orders paths: itself, transitive, and both ways only for the same', () => {
    fc.assert(
      fc.property(segments, segments, segments, (a, b, c) => {
        const [x, y, z] = [toPath(a), toPath(b), toPath(c)];
        expect(pathCovers(x, x)).toBe(true);
        if (pathCovers(x, y) && pathCovers(y, z)) expect(pathCovers(x, z)).toBe(true);
        if (pathCovers(x, y) && pathCovers(y, x)) expect(x).toBe(y);
      }),
    );
  });
});

describe('leasesConflict', () => {
  it('does not depend on who came first', () => {
    fc.assert(
      fc.property(lease, lease, (a, b) => {
        expect(leasesConflict(a, b)).toBe(leasesConflict(b, a));
      }),
    );
  });

  it('is true of itself, false across types, by the very name for all but paths; row 082', () => {
    fc.assert(
      fc.property(lease, lease, (a, b) => {
        expect(leasesConflict(a, a)).toBe(true);
        if (a.type !== b.type) expect(leasesConflict(a, b)).toBe(false);
        else if (a.type !== 'bound_path') expect(leasesConflict(a, b)).toBe(a.key === b.key);
      }),
    );
  });

  it('of two paths is true when one lies in the other, either way round', () => {
    fc.assert(
      fc.property(segments, segments, (a, b) => {
        const [x, y] = [toPath(a), toPath(b)];
        const path = (key: string) => ({ type: 'bound_path' as const, key });
        expect(leasesConflict(path(x), path(y))).toBe(pathCovers(x, y) || pathCovers(y, x));
      }),
    );
  });
});
