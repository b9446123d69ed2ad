#!/usr/bin/env -S node --
/** The entry of `outlive`, the command line. */
import { CommanderError } from 'commander';
import { Frame, processSurroundings } from './commands/context.ts';
import { errorText } from './commands/error-text.ts';
import { buildProgram } from './commands/list.ts';
import { EXIT, OutliveError } from './domain/errors.ts';
import { VERSION } from './version.ts';

/** Runs a command line; resolves with the exit status. */
async function main(argv: readonly string[]): Promise<number> {
  const frame = new Frame(processSurroundings(import.meta.dirname, process.env));
  try {
    await buildProgram(VERSION, frame).parseAsync([...argv], { from: 'user' });
    return frame.exitCode;
  } catch (error) {
    // Commander has said what is wrong by now; it exits with 1 where we exit with 2.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    await frame.surroundings.stderr.line(errorText(error, frame.workspace));
    return error instanceof OutliveError ? error.exit : EXIT.failed;
  }
}

// Set, not exited with: what is still being written is written.
process.exitCode = await main(process.argv.slice(2));
