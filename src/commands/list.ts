/** Every command, in the order of the help. The program is built from this list. */
import { Command } from 'commander';
import { registerActive, registerStuck } from './active.ts';
import { registerDrain, registerPause, registerResume } from './admission.ts';
import { registerApprovals, registerApprove, registerDeny } from './approvals.ts';
import { registerArtifacts } from './artifacts.ts';
import { registerAttempts } from './attempts.ts';
import { registerBackup } from './backup.ts';
import { registerCancel } from './cancel.ts';
import { registerChannels } from './channels.ts';
import { registerCompletion } from './completion.ts';
import { example, type Frame } from './context.ts';
import { registerDaemon } from './daemon.ts';
import { registerDebris } from './debris.ts';
import { registerDoctor } from './doctor.ts';
import { registerDriver } from './driver.ts';
import { registerEvents } from './events.ts';
import { registerExplain } from './explain.ts';
import { registerGc } from './gc.ts';
import { registerLedger } from './ledger.ts';
import { registerLinear } from './linear.ts';
import { registerLogs } from './logs.ts';
import { registerProviders, registerSpend } from './providers.ts';
import { registerPs } from './ps.ts';
import { registerReconcile } from './reconcile.ts';
import { registerLeases, registerSlots } from './resources.ts';
import { registerRestore } from './restore.ts';
import { registerRetry } from './retry.ts';
import { registerRun } from './run.ts';
import { registerShow } from './show.ts';

const COMMANDS: readonly ((program: Command, frame: Frame) => void)[] = [
  registerRun,
  registerPs,
  registerShow,
  registerEvents,
  registerLogs,
  registerAttempts,
  registerLedger,
  registerArtifacts,
  registerExplain,
  registerApprovals,
  registerApprove,
  registerDeny,
  registerCancel,
  registerRetry,
  registerReconcile,
  registerActive,
  registerStuck,
  registerLeases,
  registerSlots,
  registerDriver,
  registerChannels,
  registerProviders,
  registerSpend,
  registerLinear,
  registerPause,
  registerDrain,
  registerResume,
  registerGc,
  registerBackup,
  registerRestore,
  registerDaemon,
  registerDebris,
  registerDoctor,
  registerCompletion,
];

/** The whole command line. It throws CommanderError instead of ending the process. */
export function buildProgram(version: string, frame: Frame): Command {
  const { stdout, stderr } = frame.surroundings;
  const program = new Command('outlive')
    .description('Runs coding agents so that their runs outlive everything around them.')
    .version(version, '--version')
    .option('--workspace <name>', 'which workspace (default: OUTLIVE_WORKSPACE, else main)')
    .exitOverride()
    .showHelpAfterError('See --help for how it is used.')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => void stdout.write(text),
      writeErr: (text) => void stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error: /, 'outlive: ')),
    })
    .addHelpText('after', example('outlive run -- fix the failing test', 'outlive ps'));
  for (const register of COMMANDS) register(program, frame);
  return program;
}
