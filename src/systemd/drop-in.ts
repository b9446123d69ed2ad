/**
 * The drop-in that makes every attempt of a workspace leave an exit record, and the
 * script it runs.
 *
 * A drop-in for the name prefix (`outlive-<workspace>-.service.d`, man systemd.unit)
 * applies to transient units as well, without a daemon-reload, and is read anew after
 * one, which ExecStopPost as a transient property does not survive (measured on 252).
 * `+` runs it outside the unit's sandbox; `-` keeps its failure, whatever it be, from
 * turning the Result of a good run into exit-code.
 *
 * The script lies beside it, not in the checkout: a deploy replaces that while attempts
 * run on. And not in the daemon's runtime directory, which systemd may remove when the
 * daemon stops (RuntimeDirectory=): script and drop-in live exactly as long as each other.
 */
import path from 'node:path';
import { OutliveError } from '../domain/errors.ts';
import { dropInDirectoryName } from '../domain/names.ts';
import { ensureFile } from '../executor/atomic-file.ts';
import { CONTROL } from './properties.ts';
import { list, texts } from './values.ts';

export interface DropInOptions {
  readonly workspace: string;
  /** $XDG_RUNTIME_DIR. */
  readonly userRuntime: string;
  /** Absolute; where the records go. */
  readonly exits: string;
  /** Text of exit-record.sh. */
  readonly script: string;
}

/** A word of a command line in a unit file, kept from every expansion (man systemd.service). */
export function quoteForUnitFile(word: string): string {
  if (CONTROL.test(word)) {
    throw new OutliveError(
      'path_unsupported',
      `The path ${JSON.stringify(word)} holds a control character.`,
    );
  }
  const escaped = word.replace(/[\\"]/g, '\\$&').replaceAll('%', '%%').replaceAll('$', '$$$$');
  return `"${escaped}"`;
}

export class ExitRecordDropIn {
  /** Absolute path of the drop-in, as it must appear in a unit's DropInPaths. */
  readonly path: string;
  readonly #script: string;
  readonly #options: DropInOptions;
  readonly #content: string;

  constructor(options: DropInOptions) {
    const directory = path.join(
      options.userRuntime,
      'systemd/user',
      dropInDirectoryName(options.workspace),
    );
    this.path = path.join(directory, '50-exit.conf');
    this.#script = path.join(directory, 'exit-record.sh');
    this.#options = options;
    const command = [this.#script, options.exits].map(quoteForUnitFile).join(' ');
    this.#content = [
      '# Written by outlived before each start; changes here are overwritten.',
      '[Service]',
      `ExecStopPost=-+/bin/sh ${command}`,
      '',
    ].join('\n');
  }

  /**
   * Puts script and drop-in in place where they are missing or differ; other files there
   * are a person's and stay.
   * @throws OutliveError `disk_full` or `state_dir_unwritable`, naming the file.
   */
  async ensure(): Promise<void> {
    try {
      await ensureFile(this.#script, this.#options.script, 0o600);
      await ensureFile(this.path, this.#content, 0o600);
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : null;
      throw new OutliveError(
        code === 'ENOSPC' || code === 'EDQUOT' ? 'disk_full' : 'state_dir_unwritable',
        `The exit-record drop-in ${this.path} cannot be written: ${String(error)}.`,
        { cause: error },
      );
    }
  }

  /**
   * True when a unit will leave its record: it has the drop-in, and no later drop-in has
   * emptied the list again.
   * @param paths the unit's DropInPaths @param commands its ExecStopPost, a(sasb…)
   */
  appliesTo(paths: unknown, commands: unknown): boolean {
    if (!texts(paths).includes(this.path)) return false;
    // The property shows arguments before the expansion of `$`, but after that of `%` and quotes.
    const shown = [this.#script, this.#options.exits].map((word) => word.replaceAll('$', '$$$$'));
    return list(commands).some((command) => {
      const [, script, exits] = texts(list(command)[1]);
      return script === shown[0] && exits === shown[1];
    });
  }
}
