/**
 * What becomes of work whose attempt was lost: pure. The evidence is gathered before
 * (the old cgroup is empty, its claim taken, its spool read to the end), the decision is
 * committed together with the loss, so that one loss is answered exactly once.
 */
import { z } from 'zod';
import type { LossCode, ResumeBlock } from './outcome-codes.ts';
import { describeOutcome, LOSSES, RESUME_BLOCKS } from './outcome-codes.ts';
import type { SessionState } from './session-file.ts';
import type { RunnerId } from './work-unit.ts';

export const LOST_POLICIES = ['resume', 'fail', 'block'] as const;
export type LostPolicy = (typeof LOST_POLICIES)[number];

/** A conversation can be gone on with; a command knows nothing of its first half. */
export const defaultLostPolicy = (runner: RunnerId): LostPolicy =>
  runner === 'pi' ? 'resume' : 'fail';

export interface ResumeLimits {
  /** A loss whose last sign of life is older than this waits for a person, milliseconds. */
  readonly maxAgeMs: number;
  /** So many losses of one work unit within the window are gone on from; the next one waits. */
  readonly budget: number;
  /** Losses older than this no longer count, milliseconds. */
  readonly windowMs: number;
}

export const RESUME_LIMITS: ResumeLimits = {
  maxAgeMs: 24 * 3_600_000,
  budget: 5,
  windowMs: 3_600_000,
};

export interface Loss {
  readonly policy: LostPolicy;
  readonly cause: LossCode;
  /** Since its last sign of life, milliseconds. */
  readonly ageMs: number;
  /** Losses of this work unit within the window, this one included; orderly suspensions are none. */
  readonly recentLosses: number;
  /** Null for a runner without a conversation. */
  readonly session: SessionState | null;
  /** It had a conversation by all other evidence: calls that began, or turns before it. */
  readonly hadConversation: boolean;
  /** The directory the next attempt would work in, and whether it is there. */
  readonly cwd: { readonly path: string; readonly exists: boolean };
}

export type LossDecision =
  | { readonly kind: 'resume'; readonly delayMs: number }
  | { readonly kind: 'fail' }
  | { readonly kind: 'block'; readonly code: ResumeBlock; readonly message: string };

const block = (code: ResumeBlock, detail: string): LossDecision => ({
  kind: 'block',
  code,
  message: `${RESUME_BLOCKS[code]}: ${detail}`,
});

const DELAY_FIRST_MS = 5_000;
const DELAY_MAX_MS = 300_000;

/** The first loss is gone on from at once; a loop of them slows down until its budget is spent. */
export function resumeDelayMs(recentLosses: number): number {
  if (recentLosses <= 1) return 0;
  return Math.min(DELAY_FIRST_MS * 2 ** (recentLosses - 2), DELAY_MAX_MS);
}

const hours = (ms: number): string => `${Math.round(ms / 360_000) / 10} h`;

/** Decides; the order is from what a person said to what the machine found. */
export function decideLoss(loss: Loss, limits: ResumeLimits): LossDecision {
  if (loss.policy === 'fail') return { kind: 'fail' };
  if (loss.policy === 'block') return block('resume_needs_decision', LOSSES[loss.cause]);
  if (loss.ageMs > limits.maxAgeMs) {
    return block(
      'resume_too_old',
      `${hours(loss.ageMs)} ago, the limit is ${hours(limits.maxAgeMs)}`,
    );
  }
  if (loss.session?.kind === 'corrupt') {
    const { line, reason } = loss.session;
    return block('resume_session_corrupt', `line ${line}: ${reason}`);
  }
  if (loss.session?.kind === 'empty' && loss.hadConversation) {
    return block('resume_session_missing', 'no session file of Pi’s is there');
  }
  if (!loss.cwd.exists) return block('resume_cwd_missing', loss.cwd.path);
  if (loss.recentLosses > limits.budget) {
    return block(
      'resume_budget_exhausted',
      `${loss.recentLosses} times within ${hours(limits.windowMs)}`,
    );
  }
  return { kind: 'resume', delayMs: resumeDelayMs(loss.recentLosses) };
}

/** One call of the last turn, as spool and conversation have it together. */
const callSchema = z.object({
  toolCallId: z.string(),
  tool: z.string(),
  arguments: z.unknown(),
});

/** What the next attempt has to tell the model: stored with the decision, used by its launch. */
export const resumeNoteSchema = z.object({
  attemptId: z.string(),
  attemptNumber: z.int(),
  cause: z.enum(Object.keys(LOSSES) as [LossCode, ...LossCode[]]),
  lostAt: z.string(),
  /** Began and left no result: whether they took effect nobody knows. */
  open: z.array(callSchema),
  /** Ended, but the conversation does not have what they said. */
  finished: z.array(callSchema.extend({ isError: z.boolean(), result: z.string() })),
  /** Asked for by the model and never begun. */
  notRun: z.array(callSchema),
  /** The conversation holds the task already. */
  conversation: z.boolean(),
});
export type ResumeNote = z.infer<typeof resumeNoteSchema>;

/** What the spool says of one call. */
export interface SpoolCall {
  readonly toolCallId: string;
  readonly tool: string;
  readonly arguments: unknown;
  readonly end: { readonly isError: boolean; readonly result: string } | null;
}

/** Sorts the calls of an interrupted turn into open, finished and never begun. */
export function sortCalls(
  session: SessionState | null,
  spooled: readonly SpoolCall[],
): Pick<ResumeNote, 'open' | 'finished' | 'notRun'> {
  const asked = session?.kind === 'whole' ? session.openCalls : [];
  const byId = new Map(spooled.map((call) => [call.toolCallId, call]));
  const named = asked.map((call) => ({ call, seen: byId.get(call.toolCallId) }));
  const askedIds = new Set(asked.map(({ toolCallId }) => toolCallId));
  // Begun, unfinished and not even asked for in the conversation: its message was lost too.
  const strays = spooled
    .filter(({ end, toolCallId }) => end === null && !askedIds.has(toolCallId))
    .map(({ toolCallId, tool, arguments: given }) => ({ toolCallId, tool, arguments: given }));
  return {
    open: [
      ...named.flatMap(({ call, seen }) => (seen && seen.end === null ? [call] : [])),
      ...strays,
    ],
    finished: named.flatMap(({ call, seen }) => (seen?.end ? [{ ...call, ...seen.end }] : [])),
    notRun: named.flatMap(({ call, seen }) => (seen ? [] : [call])),
  };
}

const ARGUMENTS_MAX = 2_000;
const RESULT_MAX = 16_000;

function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  const half = Math.floor(most / 2);
  return `${text.slice(0, half)}\n[… ${text.length - 2 * half} characters left out …]\n${text.slice(-half)}`;
}

const line = ({ tool, arguments: given }: z.infer<typeof callSchema>): string =>
  `- ${tool} ${cut(JSON.stringify(given) ?? '', ARGUMENTS_MAX)}`;

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [[title, ...lines].join('\n')];
}

/** The prompt that goes on with an interrupted conversation. Plain text for a model. */
export function continuationPrompt(note: ResumeNote): string {
  return [
    `This run was interrupted: attempt ${note.attemptNumber} ended at ${note.lostAt} (${describeOutcome(note.cause)}). You are in a new process now; nothing you had started is still running, and files may have changed.`,
    ...section(
      'These tool calls had begun and left no result. Find out whether they took effect before you run anything like them again:',
      note.open.map(line),
    ),
    ...section(
      'These had ended, but their results are missing above. Do not run them again:',
      note.finished.map(
        (call) =>
          `${line(call)}\n  ${call.isError ? 'failed' : 'result'}: ${cut(call.result, RESULT_MAX)}`,
      ),
    ),
    ...section('These were asked for and never begun:', note.notRun.map(line)),
    'Go on with the task from where it stopped. If it was done already, say so.',
  ].join('\n\n');
}
