/**
 * Property tests use one seed, so that a run says the same twice; OUTLIVE_TEST_SEED=random
 * looks further, and a number replays what it found.
 */
import fc from 'fast-check';

const FIXED = 20_261_129;
const wanted = process.env['OUTLIVE_TEST_SEED'];
fc.configureGlobal({
  ...fc.readConfigureGlobal(),
  ...(wanted === 'random' ? {} : { seed: wanted === undefined ? FIXED : Number(wanted) }),
});
