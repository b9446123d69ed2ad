/** The thread that looks: says that it is there, looks once, tells, ends. */
import { parentPort, workerData } from 'node:worker_threads';
import { type LookRequest, look } from './outcome-look.ts';

parentPort?.postMessage('ready');
parentPort?.postMessage(look(workerData as LookRequest));
