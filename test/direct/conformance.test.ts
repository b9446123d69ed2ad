/** The conformance table where there is no systemd: no tools of it on PATH, no bus to connect to. */
import { conformance } from '../support/conformance.ts';
import { Rig } from '../support/rig.ts';

conformance('direct', () => Rig.create({ withoutSystemd: true }));
