/**
 * The one table of errors: stable code, HTTP status, CLI exit code, title.
 *
 * `detail` says what happened this time and what to do; the title never changes.
 * Codes of an attempt's end (`hard_timeout`, `oom`, …) are in outcome-codes.ts:
 * those are results, not refusals.
 */

/** CLI exit codes (documented in docs/concepts.md). */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  unreachable: 4,
  conflict: 5,
  timeout: 124,
  cancelled: 130,
} as const;

interface ErrorRow {
  readonly status: number;
  readonly exit: number;
  readonly title: string;
}

export const ERRORS = {
  // What was asked is wrong.
  invalid_request: { status: 422, exit: EXIT.usage, title: 'The request is not valid' },
  bad_request: { status: 400, exit: EXIT.usage, title: 'The request is not valid HTTP' },
  malformed_body: { status: 400, exit: EXIT.usage, title: 'The body is not valid JSON' },
  unsupported_media_type: {
    status: 415,
    exit: EXIT.usage,
    title: 'The body must be application/json',
  },
  duplicate_key: { status: 422, exit: EXIT.usage, title: 'The body names a field twice' },
  body_too_large: { status: 413, exit: EXIT.usage, title: 'The body is too large' },
  usage: { status: 400, exit: EXIT.usage, title: 'The command line is not valid' },
  cwd_missing: { status: 422, exit: EXIT.usage, title: 'The working directory cannot be used' },
  prompt_empty: { status: 422, exit: EXIT.usage, title: 'The prompt is empty' },
  invalid_cursor: { status: 400, exit: EXIT.usage, title: 'The cursor is not one of ours' },
  // Who asks.
  unauthorized: { status: 401, exit: EXIT.failed, title: 'A valid bearer token is required' },
  webhook_refused: {
    status: 401,
    exit: EXIT.failed,
    title: 'The webhook is not signed by its sender, or not of now',
  },
  forbidden_origin: {
    status: 403,
    exit: EXIT.failed,
    title: 'This Host or Origin may not use the API',
  },
  // What is asked for.
  not_found: { status: 404, exit: EXIT.notFound, title: 'There is no such thing' },
  artifact_gone: {
    status: 404,
    exit: EXIT.notFound,
    title: 'The file of this artifact is not there any more',
  },
  method_not_allowed: { status: 405, exit: EXIT.usage, title: 'This method is not offered here' },
  handle_taken: { status: 409, exit: EXIT.conflict, title: 'A live work unit has this handle' },
  idempotency_mismatch: {
    status: 409,
    exit: EXIT.conflict,
    title: 'The idempotency key was used for another request',
  },
  stale_unproved: {
    status: 409,
    exit: EXIT.conflict,
    title: 'Nobody can prove that the attempt runs no more',
  },
  state_conflict: { status: 409, exit: EXIT.conflict, title: 'The work unit is in another state' },
  approval_closed: {
    status: 409,
    exit: EXIT.conflict,
    title: 'The approval is no longer open',
  },
  checkpoint_conflict: {
    status: 409,
    exit: EXIT.conflict,
    title: 'The checkpoint is another one by now',
  },
  channel_closed: { status: 409, exit: EXIT.conflict, title: 'The channel takes no work' },
  subject_busy: { status: 409, exit: EXIT.conflict, title: 'Live work is about the same subject' },
  resource_busy: { status: 409, exit: EXIT.conflict, title: 'A needed resource is taken' },
  work_tree_unavailable: {
    status: 409,
    exit: EXIT.conflict,
    title: 'No work tree can be had of the repository',
  },
  sandbox_unavailable: {
    status: 422,
    exit: EXIT.usage,
    title: 'The sandbox that is asked for cannot be had here',
  },
  target_exists: { status: 409, exit: EXIT.conflict, title: 'The file is already there' },
  maintenance_running: {
    status: 409,
    exit: EXIT.conflict,
    title: 'The same upkeep is already under way',
  },
  control_plane_snapshot_required: {
    status: 410,
    exit: EXIT.failed,
    title: 'The events after this cursor cannot be replayed; load a snapshot',
  },
  stream_stalled: {
    status: 408,
    exit: EXIT.failed,
    title: 'The client of a stream took nothing for too long',
  },
  // What outlive stands on.
  daemon_unreachable: { status: 503, exit: EXIT.unreachable, title: 'The daemon does not answer' },
  starting: { status: 503, exit: EXIT.unreachable, title: 'The daemon is starting' },
  shutting_down: { status: 503, exit: EXIT.unreachable, title: 'The daemon is shutting down' },
  store_unavailable: { status: 503, exit: EXIT.unreachable, title: 'The store cannot be used' },
  store_newer: {
    status: 503,
    exit: EXIT.unreachable,
    title: 'The store was written by a newer outlive',
  },
  store_damaged: { status: 503, exit: EXIT.unreachable, title: 'The store is damaged' },
  version_unknown: {
    status: 503,
    exit: EXIT.unreachable,
    title: 'A file was written by a newer outlive',
  },
  backup_failed: { status: 500, exit: EXIT.failed, title: 'The backup could not be written' },
  backup_unusable: { status: 422, exit: EXIT.failed, title: 'The backup cannot be restored' },
  disk_full: { status: 507, exit: EXIT.failed, title: 'The disk is full' },
  workspace_owned: {
    status: 409,
    exit: EXIT.conflict,
    title: 'Another daemon owns this workspace',
  },
  no_user_manager: {
    status: 503,
    exit: EXIT.unreachable,
    title: 'No systemd user manager is reachable',
  },
  bus_unavailable: { status: 503, exit: EXIT.unreachable, title: 'The user bus does not answer' },
  config_unreadable: { status: 500, exit: EXIT.usage, title: 'The configuration cannot be used' },
  state_dir_unwritable: {
    status: 500,
    exit: EXIT.failed,
    title: 'The state directory cannot be written',
  },
  network_file_system: {
    status: 500,
    exit: EXIT.failed,
    title: 'The state directory is on a network file system',
  },
  path_unsupported: { status: 500, exit: EXIT.failed, title: 'A path cannot be given to systemd' },
  socket_path_too_long: { status: 500, exit: EXIT.failed, title: 'A socket path is too long' },
  port_taken: { status: 500, exit: EXIT.failed, title: 'The API port is taken' },
  internal: { status: 500, exit: EXIT.failed, title: 'outlive made a mistake' },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

/** One bad field: `path` in JSON pointer form (`/timeoutPolicy/hardTimeoutMs`). */
export interface FieldError {
  readonly path: string;
  readonly message: string;
}

/** Every refusal outlive makes on purpose. `detail` says what to do. */
export class OutliveError extends Error {
  override readonly name = 'OutliveError';
  readonly code: ErrorCode;
  readonly fields: readonly FieldError[];
  /** Facts a program may want: the owner of a lock, the id of the other work unit. */
  readonly extra: Readonly<Record<string, unknown>>;

  constructor(
    code: ErrorCode,
    detail: string,
    options: {
      fields?: readonly FieldError[];
      extra?: Readonly<Record<string, unknown>>;
      cause?: unknown;
    } = {},
  ) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.fields = options.fields ?? [];
    this.extra = options.extra ?? {};
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  get exit(): number {
    return ERRORS[this.code].exit;
  }

  get title(): string {
    return ERRORS[this.code].title;
  }
}
