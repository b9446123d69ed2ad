/** Runs the scripted model as a process: main.ts [--port N] [--port-file FILE] [--api-key KEY] [--model NAME]… */
import { rename, writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { startScriptedModel } from './server.ts';

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    'port-file': { type: 'string' },
    'api-key': { type: 'string' },
    model: { type: 'string', multiple: true },
  },
});

const model = await startScriptedModel({
  port: Number(values.port),
  ...(values['api-key'] !== undefined && { apiKey: values['api-key'] }),
  ...(values.model !== undefined && { models: values.model }),
});
// Before the port file: who reads it may stop us at once.
process.once('SIGTERM', () => void model.close());
process.once('SIGINT', () => void model.close());

const portFile = values['port-file'];
if (portFile !== undefined) {
  await writeFile(`${portFile}.new`, `${model.port}\n`);
  await rename(`${portFile}.new`, portFile);
}
console.log(`listening on ${model.baseUrl} (scripted model, no provider)`);
