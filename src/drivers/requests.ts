/** The work units that a driver asks for: its census, and one for each subject. */
import { DRIVER_CENSUS, type DriverSpec } from '../domain/driver.ts';
import type { Subject } from '../domain/driver-census.ts';
import { DRIVER_OWNER } from '../domain/ledger.ts';
import {
  type StartWorkUnit,
  type StartWorkUnitInput,
  startWorkUnitSchema,
} from '../domain/request.ts';
import type { DriverRow } from '../store/drivers.ts';
import { filledPrompt } from './prompt.ts';

/** The lane of a driver's runs; its policy may be set as any channel's. */
export const channelOf = (driver: string): string => `driver:${driver}`;

export const censusKey = (driver: string, tick: number): string =>
  `driver-census ${driver} ${tick}`;
export const subjectKey = (driver: string, tick: number, subject: string): string =>
  `driver ${driver} ${tick} ${subject}`;

type Variables = Pick<StartWorkUnitInput, 'environment' | 'environmentFiles'>;

/** Variables reach what runs by this alone. */
const variablesOf = (spec: DriverSpec, more: Readonly<Record<string, string>> = {}): Variables => ({
  environment: { ...spec.environment, ...more },
  environmentFiles: spec.environmentFiles,
});

/** What the census and the runs have in common. */
const common = (
  name: string,
  spec: DriverSpec,
): Pick<StartWorkUnitInput, 'sandbox' | 'createdByClientId' | 'ownerId'> => ({
  ownerId: name,
  createdByClientId: 'driver',
  ...(spec.sandbox === undefined ? {} : { sandbox: spec.sandbox }),
});

/** @throws ZodError for what no work can be asked for. */
export function censusRequest(
  { name, spec }: Pick<DriverRow, 'name' | 'spec'>,
  tick: number,
): StartWorkUnit {
  const { argv, timeoutMs } = spec.census;
  return startWorkUnitSchema.parse({
    ...common(name, spec),
    ...variablesOf(spec),
    runnerId: 'command',
    ownerType: DRIVER_CENSUS,
    handle: `${name}-census-${tick}`,
    argv,
    ...(spec.cwd === undefined ? {} : { cwd: spec.cwd }),
    // It changes nothing, so one that goes down with its machine is asked again.
    onLost: 'resume',
    // It costs little, and what it finds is queued behind what waits already.
    priority: 900,
    timeoutPolicy: { hardTimeoutMs: timeoutMs, idleTimeoutMs: timeoutMs },
  });
}

const variableOf = ([name, value]: [string, string]): [string, string] => [
  `OUTLIVE_VAR_${name.toUpperCase()}`,
  value,
];

/** What is run: a command may be silent for as long as it may run, an agent may not. */
function runOf(
  { run, hardTimeoutMs, toolPolicy }: DriverSpec,
  prompt: string | null,
  subject: Subject,
) {
  if (run.argv !== undefined) {
    return {
      runnerId: 'command',
      argv: run.argv,
      timeoutPolicy: { hardTimeoutMs, idleTimeoutMs: hardTimeoutMs },
    } as const;
  }
  return {
    runnerId: 'pi',
    prompt: filledPrompt(prompt ?? '', subject),
    timeoutPolicy: { hardTimeoutMs },
    ...(run.model === undefined ? {} : { model: run.model }),
    ...(toolPolicy === undefined ? {} : { toolPolicy }),
  } as const;
}

/**
 * The work on one subject. `prompt` is the text with its places.
 * @throws ZodError, PromptProblem for what no work can be asked for.
 */
export function subjectRequest(
  { name, spec }: Pick<DriverRow, 'name' | 'spec'>,
  prompt: string | null,
  subject: Subject,
): StartWorkUnit {
  const { outcome, leftovers, spendCeiling } = spec;
  return startWorkUnitSchema.parse({
    ...common(name, spec),
    ...variablesOf(spec, Object.fromEntries(Object.entries(subject.vars).map(variableOf))),
    ...runOf(spec, prompt, subject),
    kind: 'external_work_step',
    ownerType: DRIVER_OWNER,
    handle: subject.handle,
    cwd: subject.cwd ?? spec.cwd,
    externalSubject: subject.subject,
    onNewerSubject: 'block',
    channelId: channelOf(name),
    priority: subject.priority ?? spec.priority,
    leftovers,
    ...(outcome === undefined ? {} : { outcome }),
    ...(spendCeiling === undefined ? {} : { spendCeiling }),
  });
}
