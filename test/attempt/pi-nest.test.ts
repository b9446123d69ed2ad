import { expect, test } from 'vitest';
import type { Emit } from '../../src/attempt/event-data.ts';
import { runPi } from '../../src/attempt/pi-runner.ts';
import { redactor } from '../../src/attempt/redact.ts';
import type { RunnerContext } from '../../src/attempt/runner.ts';
import { StopSwitch } from '../../src/attempt/stop.ts';
import type { LaunchFile } from '../../src/domain/attempt-files.ts';
import { asks, Decider, grant } from './support/decider.ts';
import { makePiLab, type PiLab } from './support/pi-lab.ts';

/** Stands for a nest: what runs through it can be told by a variable. */
const ENTER = ['env', 'NESTED=in the nest'];

interface Ended {
  readonly toolCallId: string;
  readonly result: string;
  readonly isError: boolean;
}

/** Runs Pi in this process, since no attempt has a nest that can be chosen; ends of calls in order. */
async function ends({ lab }: PiLab, changes: Partial<LaunchFile> = {}): Promise<readonly Ended[]> {
  const launch = { ...lab.launch, ...changes };
  if (launch.runner.kind !== 'pi') throw new Error('no Pi');
  const seen: Ended[] = [];
  const emit: Emit = (type, data) => {
    if (type === 'tool.end') seen.push(data as unknown as Ended);
    return true;
  };
  const context: RunnerContext = {
    launch,
    attemptDirectory: lab.directory,
    environment: launch.environment,
    emit,
    onLook: () => {},
    providers: [],
    nest: { enter: ENTER, paths: { hidden: [], readOnly: [], shown: [] } },
    live: () => {},
    stop: new StopSwitch(),
    redact: redactor({}),
    warn: () => {},
  };
  expect(await runPi(context, launch.runner)).toMatchObject({ verdict: 'ok', text: 'done' });
  return seen;
}

test('every command of the model runs in the nest, whatever it is made of', async () => {
  const made = await makePiLab({
    script: [
      `bash echo "$NESTED"; echo 'it'"'"'s "quoted" $NESTED'; false || exit 3`,
      String.raw`call bash {"command":"cat <<EOF\n'$NESTED'\nEOF"}`,
      'say done',
    ],
  });
  const [first, second] = await ends(made);
  expect(first).toMatchObject({ isError: true });
  expect(first?.result).toBe(`in the nest\nit's "quoted" $NESTED\n\n\nCommand exited with code 3`);
  expect(second?.result).toBe("'in the nest'\n");
});

test("the person's shell and prefix hold in the nest, too", async () => {
  const made = await makePiLab({
    script: ['bash echo "$NESTED, $FROM_PREFIX"', 'say done'],
    pi: { settings: { shellCommandPrefix: 'FROM_PREFIX=prefix' } },
  });
  expect((await ends(made))[0]?.result).toBe('in the nest, prefix\n');
});

test('a command that takes too long is ended in the nest', async () => {
  const made = await makePiLab({
    script: ['call bash {"command":"echo $NESTED; sleep 60","timeout":0.3}', 'say done'],
  });
  expect((await ends(made))[0]?.result).toContain('Command timed out after 0.3 seconds');
});

test('an approved command of an earlier attempt runs in the nest', async () => {
  const made = await makePiLab({ script: ['say done'] });
  const call = { tool: 'bash', arguments: { command: 'echo "$NESTED"' }, cwd: made.lab.launch.cwd };
  const approvals = new Decider().spec(asks('bash'), [grant(call)]);
  expect(await ends(made, { approvals })).toMatchObject([
    { toolCallId: 'call-of-old', result: 'in the nest\n', isError: false },
  ]);
});
