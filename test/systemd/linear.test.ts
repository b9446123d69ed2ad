/** The Linear agent with real Pi on real systemd. */
import { linearConformance } from '../support/conformance-linear.ts';
import { LinearScene } from '../support/linear-scene.ts';

linearConformance('systemd', () => LinearScene.create());
