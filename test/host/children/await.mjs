// Inside the host: writes the agent directory of the lab, or waits for files. Used by lost.test.ts.
import { existsSync, mkdirSync, watch } from 'node:fs';
import path from 'node:path';
import { writePiLab } from '../../support/scripted-model/lab.ts';

const [what, ...words] = process.argv.slice(2);
if (what === 'lab') {
  const [directory, baseUrl] = words;
  await writePiLab(directory, { baseUrl, apiKey: 'test-key' });
} else {
  const [file] = words;
  mkdirSync(path.dirname(file), { recursive: true });
  const { promise, resolve } = Promise.withResolvers();
  const watcher = watch(path.dirname(file), () => existsSync(file) && resolve());
  if (existsSync(file)) resolve();
  await promise;
  watcher.close();
}
