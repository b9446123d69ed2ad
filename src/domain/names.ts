/**
 * Names: workspace, handle and the unit name made of them.
 *
 * A unit name is the only thing about an attempt that a person types, so name
 * to work and work to name are exact inverses: a workspace holds no dash, a
 * counter no leading zero, and whatever stands between the two is the handle.
 */
import { z } from 'zod';

/** One store, one daemon, one name. No dash: it ends the workspace in a unit name. */
export const workspaceSchema = z
  .string()
  .regex(/^[a-z0-9]{1,32}$/, 'a workspace is 1 to 32 characters of a-z and 0-9');

/** The human name of a work unit, unique among live work units of a workspace. */
export const handleSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$/,
    'a handle is 1 to 64 characters of a-z, 0-9 and "-", beginning and ending with a letter or digit',
  );

/** What a unit name stands for. */
export interface UnitIdentity {
  readonly workspace: string;
  readonly handle: string;
  /** Counter per handle; it only grows, so a unit name is never used twice. */
  readonly counter: number;
}

const UNIT_NAME =
  /^outlive-([a-z0-9]{1,32})-([a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?)-([1-9][0-9]{0,14})\.service$/;

/** The unit name of an attempt: `outlive-<workspace>-<handle>-<n>.service`. */
export function unitName({ workspace, handle, counter }: UnitIdentity): string {
  return `outlive-${workspace}-${handle}-${counter}.service`;
}

/** The inverse of {@link unitName}; null for every name we would not have made. */
export function parseUnitName(name: string): UnitIdentity | null {
  const match = UNIT_NAME.exec(name);
  if (!match) return null;
  const [, workspace = '', handle = '', counter = ''] = match;
  return { workspace, handle, counter: Number(counter) };
}

/** Glob that holds every unit of a workspace (systemd's ListUnitsByPatterns). */
export function unitPattern(workspace: string): string {
  return `outlive-${workspace}-*.service`;
}

/** The slice in which all attempts of a workspace run; stopping it stops them all. */
export function sliceName(workspace: string): string {
  return `outlive-attempts-${workspace}.slice`;
}

/** The prefix drop-in directory that systemd applies to every unit of a workspace (man systemd.unit). */
export function dropInDirectoryName(workspace: string): string {
  return `outlive-${workspace}-.service.d`;
}

/** The unit the daemon itself runs as when no unit files are installed. */
export function daemonUnitName(workspace: string): string {
  return `outlived-${workspace}.service`;
}

/** What ops/scripts/install puts in place for a workspace, instead of {@link daemonUnitName}. */
export interface InstalledUnits {
  readonly service: string;
  /** They start the service when somebody connects, so they are stopped before it. */
  readonly sockets: readonly string[];
}

export function installedUnits(workspace: string): InstalledUnits {
  return {
    service: `outlived@${workspace}.service`,
    sockets: [`outlived-http@${workspace}.socket`, `outlived-api@${workspace}.socket`],
  };
}
