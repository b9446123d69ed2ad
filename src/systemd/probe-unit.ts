/** The unit in which a sandbox is tried out: that of an attempt as far as the sandbox goes. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type { PlainProperty } from './properties.ts';
import { sandboxProperties } from './properties.ts';

/** Far above what it takes, and below anybody's patience. */
export const PROBE_MS = 15_000;

/** A name that no prefix drop-in of ours applies to, and no list of attempts holds. */
export const probeUnitName = (): string =>
  `outlive.probe-${randomBytes(8).toString('hex')}.service`;

/** Its properties; `argv` holds nothing that systemd would expand. */
export function probeUnitProperties(
  argv: readonly string[],
  hidden: string,
): readonly PlainProperty[] {
  const property = (name: string, signature: string, value: unknown): PlainProperty => ({
    name,
    signature,
    value,
  });
  return [
    // oneshot: the start job ends with the probe.
    property('Type', 's', 'oneshot'),
    property('ExecStart', 'a(sasb)', [[argv[0], argv, false]]),
    property('Description', 's', 'outlive tries out its sandbox'),
    property('WorkingDirectory', 's', path.dirname(hidden)),
    property('TimeoutStartUSec', 't', BigInt(PROBE_MS) * 1_000n),
    property('TimeoutStopUSec', 't', 1_000_000n),
    property('UMask', 'u', 0o077),
    // A failed one is not to lie about: it is expected where there is no sandbox.
    property('CollectMode', 's', 'inactive-or-failed'),
    ...sandboxProperties({ inaccessible: [hidden], readOnly: [] }),
  ];
}
