/** What a command is given, and the frame every command runs in. */
import path from 'node:path';
import type { Command } from 'commander';
import { type Client, createClient } from '../client/client.ts';
import { type Config, type Environment, loadConfig } from '../config.ts';
import { Output } from './output.ts';

/** The process around a command line. */
export interface Surroundings {
  readonly env: Environment;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Directory that holds the two entries, cli.js and main.js. */
  readonly entries: string;
}

export interface Context extends Surroundings {
  readonly config: Config;
  readonly client: Client;
}

/** A command's work; resolves with the exit status. */
export type Body = (context: Context) => Promise<number>;

/** Holds the exit status until the process ends by itself: nothing is cut off. */
export class Frame {
  readonly surroundings: Surroundings;
  exitCode = 0;
  /** Known once a command ran, for messages that name it. */
  workspace: string | null = null;

  constructor(surroundings: Surroundings) {
    this.surroundings = surroundings;
  }

  /** Reads the configuration for the workspace the command line names, then runs the command. */
  async run(command: Command, body: Body): Promise<void> {
    const { workspace } = command.optsWithGlobals<{ workspace?: string }>();
    const config = loadConfig(this.surroundings.env, { workspace });
    this.workspace = config.workspace;
    const client = createClient({ socketPath: config.directories.apiSocket });
    this.exitCode = await body({ ...this.surroundings, config, client });
  }
}

/** The process's own surroundings. A reader that goes away (`| head`) ends a command quietly. */
export function processSurroundings(entries: string, env: Environment): Surroundings {
  return {
    env,
    stdout: new Output(process.stdout, { env, onBroken: () => process.exit(0) }),
    stderr: new Output(process.stderr, { env, onBroken: () => {} }),
    entries: path.resolve(entries),
  };
}

/** ` --workspace W` where a sentence names a command and the workspace is not the default one. */
export function workspaceFlag(workspace: string | null): string {
  return workspace === null || workspace === 'main' ? '' : ` --workspace ${workspace}`;
}

/** The closing lines of a command's help. */
export function example(...lines: readonly string[]): string {
  return `\nExample:\n${lines.map((line) => `  ${line}`).join('\n')}`;
}
