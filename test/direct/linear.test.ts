/** The Linear agent with real Pi where there is no systemd. */
import { linearConformance } from '../support/conformance-linear.ts';
import { LinearScene } from '../support/linear-scene.ts';

linearConformance('direct', () => LinearScene.create({ withoutSystemd: true }));
