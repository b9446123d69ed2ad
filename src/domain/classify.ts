/**
 * How an attempt ended, decided from the evidence alone. Pure and total: the rules
 * are tried in order, the first that answers wins, the last one always answers.
 * The numbers are part of the record (`decidedByRule`) and of docs/concepts.md.
 */
import { WRAPPER_EXIT } from './attempt-files.ts';
import type { Evidence, Intent, ProcessEnd } from './evidence.ts';
import type { CancellationCode, FailureCode, LossCode } from './outcome-codes.ts';
import { describeOutcome, isFailureCode } from './outcome-codes.ts';
import type { Actor } from './work-unit.ts';

export type Outcome =
  | { readonly kind: 'succeeded' }
  | { readonly kind: 'failed'; readonly code: FailureCode; readonly message: string }
  | {
      readonly kind: 'cancelled';
      readonly code: CancellationCode;
      readonly message: string;
      readonly actor: Actor;
    }
  | { readonly kind: 'lost'; readonly code: LossCode; readonly message: string }
  /** Nothing ran and nothing can run any more: the work goes back to the queue. */
  | {
      readonly kind: 'never_started';
      /** What was told against the start, null when nothing was. */
      readonly reason: string | null;
      /** False when it says nothing about the next start: a unit that is not ours had the name. */
      readonly counts: boolean;
    };

export interface Verdict {
  readonly rule: number;
  readonly outcome: Outcome;
}

interface Rule {
  readonly number: number;
  readonly when: string;
  readonly decide: (evidence: Evidence) => Outcome | null;
}

const failed = (code: FailureCode, detail?: string | null): Outcome => ({
  kind: 'failed',
  code,
  message: detail || describeOutcome(code),
});
const cancelled = (code: CancellationCode, actor: Actor, detail?: string | null): Outcome => ({
  kind: 'cancelled',
  code,
  actor,
  message: detail || describeOutcome(code),
});
const lost = (code: LossCode): Outcome => ({ kind: 'lost', code, message: describeOutcome(code) });

/** systemd measures from exec, the wrapper's own clock starts a little later. */
const DEADLINE_SLACK_MS = 1_000;

/** Processes left behind that a message names; the event has all that are known. */
const NAMED_LEFTOVERS = 10;

const endedByTerm = (end: ProcessEnd | null): boolean =>
  end?.how === 'killed' && end.signal === 'TERM';

/** The manager was on its way down when the process ended: whatever ended it belongs to that. */
const wasStopping = (end: ProcessEnd | null): boolean => end?.managerState === 'stopping';

/** systemd's own SIGTERM is nobody's stop, and its result says why it was sent. */
const endedBySystemd = (end: ProcessEnd | null): boolean =>
  end?.result === 'oom-kill' || end?.result === 'watchdog';

/**
 * The last word was good, nobody had told it to stop before, and a SIGTERM came in the
 * moment between that word and the exit: what it was sent to stop was over.
 */
const finishedBeforeTerm = ({ end, lastWord, saidToldToStop }: Evidence): boolean =>
  lastWord?.verdict === 'ok' && !saidToldToStop && endedByTerm(end) && !endedBySystemd(end);

function byIntent(intent: Intent): Outcome {
  switch (intent.kind) {
    case 'cancel':
    case 'interrupt':
      return cancelled(intent.code, intent.actor, intent.reason);
    case 'suspend':
      return lost('suspended');
    case 'fail':
      return failed(intent.code, intent.reason);
  }
}

function reachedDeadline({ end, hardTimeoutMs }: Evidence): boolean {
  return (
    end?.result === 'timeout' &&
    end.elapsedMs !== null &&
    end.elapsedMs >= hardTimeoutMs - DEADLINE_SLACK_MS
  );
}

/** A stop that nobody in outlive asked for, as far as the end can tell. */
function stoppedFromOutside(evidence: Evidence): boolean {
  const { end, saidToldToStop } = evidence;
  if (endedBySystemd(end) || finishedBeforeTerm(evidence)) return false;
  // A main process that exited by itself is not what was waited for: its exit record hung.
  const stubborn = end?.result === 'timeout' && end.how !== 'exited';
  return endedByTerm(end) || stubborn || saidToldToStop;
}

/** True when no witness can tell how the main process exited. */
const isExitUnknown = (end: ProcessEnd | null): boolean =>
  end === null || end.how === 'unknown' || (end.how === 'exited' && end.status === null);

/** Statuses 200 to 243 are systemd's own: it failed before or at exec (man systemd.exec). */
const SYSTEMD_EXIT: Readonly<Record<number, string>> = {
  200: 'CHDIR',
  203: 'EXEC',
  217: 'USER',
  218: 'CAPABILITIES',
  219: 'CGROUP',
  226: 'NAMESPACE',
  233: 'RUNTIME_DIRECTORY',
  238: 'STATE_DIRECTORY',
  243: 'CREDENTIALS',
};
const NO_ROOM = 'There was no space left to open its spool';
/** Statuses the wrapper uses before it opened the spool (attempt-files.ts). */
const WRAPPER_STATUS: Readonly<Record<number, string>> = {
  [WRAPPER_EXIT.badLaunchFile]: 'the wrapper could not use launch.json',
  [WRAPPER_EXIT.noSpool]: 'the wrapper could not open the spool',
};

/** Nothing ran. A late start that lost the claim leaves a record of its own, and ran nothing either. */
function neverStarted(evidence: Evidence): Outcome | null {
  const { claim, opened, end, startProblem } = evidence;
  if (claim !== 'revoked' || opened) return null;
  // Two ends say more than that: it cannot be executed, or somebody stopped it before it began.
  if (launchFailure(evidence)) return null;
  if (endedByTerm(end) && end?.result === 'success' && !wasStopping(end)) return null;
  return {
    kind: 'never_started',
    reason: startProblem?.reason ?? null,
    counts: startProblem?.kind !== 'name_taken',
  };
}

/** The machine or its user manager went away under it. */
function hostShutdown(evidence: Evidence): Outcome | null {
  const { end, lastWord, saidToldToStop, hostChanged } = evidence;
  if (wasStopping(end) && !endedBySystemd(end) && !finishedBeforeTerm(evidence)) {
    // A unit that did not stop in time is killed: that is still the shutdown.
    if (end?.how === 'killed' || stoppedFromOutside(evidence)) return lost('host_shutdown');
  }
  // Who told it to stop can no longer be asked; that its host ended with it is certain.
  const unfinished = !lastWord || saidToldToStop;
  return !end && unfinished && hostChanged ? lost('host_shutdown') : null;
}

function launchFailure({ end, opened }: Evidence): Outcome | null {
  if (opened || end?.how !== 'exited' || end.status === null) return null;
  if (end.status === WRAPPER_EXIT.diskFull) return failed('disk_full', NO_ROOM);
  const own = WRAPPER_STATUS[end.status];
  if (own) return failed('launch_failed', own);
  if (end.status < 200 || end.status > 243) return null;
  return failed('launch_failed', `${SYSTEMD_EXIT[end.status] ?? 'systemd'} (status ${end.status})`);
}

function abnormalEnd(evidence: Evidence): Outcome | null {
  const { end } = evidence;
  if (!end || finishedBeforeTerm(evidence)) return null;
  if (end.result === 'oom-kill') return failed('oom');
  if (end.result === 'watchdog') return failed('watchdog');
  if (end.how === 'dumped' || end.result === 'core-dump') return failed('crashed', end.signal);
  if (end.how === 'killed') return failed('killed', `SIG${end.signal ?? '?'}`);
  return null;
}

/** It ended well and was to leave nobody behind: a failure that names who was there. */
function leftBehind({ lastWord, leftoverPolicy }: Evidence): Outcome | null {
  const left = lastWord?.leftovers ?? [];
  if (leftoverPolicy !== 'fail' || left.length === 0) return null;
  const named = left.slice(0, NAMED_LEFTOVERS).map(({ name, pid }) => `${name} (${pid})`);
  const more = left.length - named.length;
  const names = [...named, ...(more > 0 ? [`${more} more`] : [])].join(', ');
  return failed('leftovers', `${describeOutcome('leftovers')}: ${names}`);
}

/** The rules, first match wins. */
export const RULES: readonly Rule[] = [
  {
    number: 1,
    when: 'a cancellation was stored before',
    decide: ({ intent }) => (intent?.kind === 'cancel' ? byIntent(intent) : null),
  },
  {
    number: 2,
    when: 'an interrupt or a suspension was stored before',
    decide: ({ intent }) =>
      intent?.kind === 'interrupt' || intent?.kind === 'suspend' ? byIntent(intent) : null,
  },
  {
    number: 3,
    when: 'a failure (idle, heartbeat, tool, approval expiry, budget) was stored before',
    decide: ({ intent }) => (intent?.kind === 'fail' ? byIntent(intent) : null),
  },
  {
    number: 4,
    when: 'a halt marker carries its nonce',
    decide: ({ haltMarker }) => (haltMarker ? cancelled('halted', 'operator') : null),
  },
  {
    number: 5,
    when: 'the wrapper said it met the deadline, or systemd timed it out at or after the deadline',
    decide: (evidence) => {
      if (!evidence.saidDeadline && !reachedDeadline(evidence)) return null;
      return evidence.approvalOpen ? lost('suspended') : failed('hard_timeout');
    },
  },
  {
    number: 6,
    when: 'the claim was revoked before anything was opened: nothing ran, on any boot; unless it could not be executed (10) or was stopped before it began (8)',
    decide: neverStarted,
  },
  {
    number: 7,
    when: 'killed or told to stop while the manager was stopping; or the host is another one now, no witness tells of the exit, and the spool ends unfinished or told to stop',
    decide: hostShutdown,
  },
  {
    number: 8,
    when: 'SIGTERM that neither outlive nor systemd itself (memory, watchdog) sent, a stop that timed out before the deadline, or "told to stop" before a last word',
    decide: (evidence) =>
      stoppedFromOutside(evidence) ? cancelled('stopped_externally', 'external') : null,
  },
  {
    number: 9,
    when: 'out of memory, watchdog, core dump, or any other signal',
    decide: abnormalEnd,
  },
  {
    number: 10,
    when: 'an exit status of systemd itself before the first spool line',
    decide: launchFailure,
  },
  {
    number: 11,
    when: 'the last word is an error',
    decide: ({ lastWord }) => {
      if (lastWord?.verdict !== 'error') return null;
      const code = lastWord.code ?? 'runner_error';
      return failed(isFailureCode(code) ? code : 'runner_error', lastWord.message);
    },
  },
  {
    number: 12,
    when: 'an exit status other than 0',
    decide: ({ end }) => {
      if (end?.how !== 'exited' || end.status === null || end.status === 0) return null;
      if (end.status === WRAPPER_EXIT.spoolLost) return failed('spool_lost');
      return failed('exit_code', `status ${end.status}`);
    },
  },
  {
    number: 13,
    when: 'the last word is good, with exit status 0 or none known, or a SIGTERM that came after it; failed where it had to leave no process behind and did',
    decide: (evidence) => {
      const { lastWord, end } = evidence;
      if (lastWord?.verdict !== 'ok') return null;
      const well = end?.status === 0 || isExitUnknown(end) || finishedBeforeTerm(evidence);
      if (!well) return null;
      return leftBehind(evidence) ?? { kind: 'succeeded' };
    },
  },
  {
    number: 14,
    when: 'exit status 0 without a last word',
    decide: ({ end, lastWord }) =>
      end?.status === 0 && !lastWord ? failed('runner_no_result') : null,
  },
  { number: 15, when: 'nothing else', decide: () => lost('no_evidence') },
];

/** Decides the outcome. Never throws: the last rule matches everything. */
export function classify(evidence: Evidence): Verdict {
  for (const rule of RULES) {
    const outcome = rule.decide(evidence);
    if (outcome) return { rule: rule.number, outcome };
  }
  return { rule: 15, outcome: lost('no_evidence') };
}
