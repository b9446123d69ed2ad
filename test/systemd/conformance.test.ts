/** The conformance table on real systemd. */
import { conformance } from '../support/conformance.ts';
import { Rig } from '../support/rig.ts';

conformance('systemd', () => Rig.create());
