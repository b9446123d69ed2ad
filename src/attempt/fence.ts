/**
 * The wrapper's side of the fence: what our extension inside Pi asks before a call acts, and tells
 * after. The order is the point: nothing is answered with "go" before its start is on the disk,
 * and whatever goes wrong here is answered with "no".
 */
import { type Call, type Decision, fingerprintText, OPEN_POLICY } from '../domain/decisions.ts';
import { ACTING_TOOLS, decide, mayBeHeld, READ_ONLY_TOOLS } from '../domain/tool-policy.ts';
import { boundValue, cutMiddle } from './bounded-text.ts';
import { callDiff } from './call-diff.ts';
import { sha256 } from './decision-files.ts';
import type { Emit, EventData } from './event-data.ts';
import type { BeginRecord, EndRecord, FenceAnswer, FenceRecord } from './fence-record.ts';
import { forbiddenPath } from './forbidden-path.ts';
import type { GrantBook } from './grants.ts';
import type { JsonObject } from './json.ts';
import { insideOf } from './places.ts';
import { Questions } from './questions.ts';
import { redactValue } from './redact.ts';
import type { RunnerContext } from './runner.ts';

const ARGUMENTS_BYTES = 16 * 1024;
const RESULT_BYTES = 16 * 1024;

/**
 * Where a call stands: a person is asked; the run is stopped meanwhile, so the question stays for
 * a later attempt; it was told to have been refused; its start is on the disk; its end too.
 */
type Stage = 'asked' | 'left' | 'refused' | 'started' | 'ended';

/** A call as the spool has it. */
export type Told = Pick<EventData['tool.start'], 'toolCallId' | 'tool' | 'arguments'>;

interface Begun extends Told {
  readonly fingerprint: string;
  stage: Stage;
  /** Under which id a person is asked, where that is not the call's own. */
  askedAs?: string;
}

const NOT_WRITTEN = 'Not run: that it starts could not be written down';
const STOPPED = 'Not run: the run is being stopped';

export class Fence {
  readonly #context: RunnerContext;
  readonly #emit: Emit;
  readonly #send: (record: JsonObject) => void;
  readonly #grants: GrantBook;
  readonly #questions: Questions | null;
  readonly #calls = new Map<string, Begun>();
  /** How often was asked about a call of this id: some providers use one again. */
  readonly #asked = new Map<string, number>();
  #tellReady: (tools: readonly unknown[]) => void = () => {};

  /** Settles when the extension is up, with the tools that it has really replaced. */
  readonly ready: Promise<readonly unknown[]>;
  /** Tools that the extension replaces. */
  readonly fenced: readonly string[];
  /** Those of Pi that only read, and that the policy lets go whatever they are given. */
  readonly plain: readonly string[];

  /** `send` sends a record to Pi. Throws when the key for decisions is none. */
  constructor(
    context: RunnerContext,
    emit: Emit,
    send: (record: JsonObject) => void,
    grants: GrantBook,
  ) {
    const { approvals, attemptId } = context.launch;
    this.#context = context;
    this.#emit = emit;
    this.#send = send;
    this.#grants = grants;
    this.#questions = approvals && new Questions(approvals, attemptId, emit);
    // Pi's own tools see what its user sees: in a nest their paths are judged, reading or not.
    const isNested = context.nest !== null;
    const held = READ_ONLY_TOOLS.filter((tool) => isNested || mayBeHeld(this.#policy, tool));
    this.fenced = [...ACTING_TOOLS, ...held];
    this.plain = READ_ONLY_TOOLS.filter((tool) => !held.includes(tool));
    this.ready = new Promise((resolve) => {
      this.#tellReady = resolve;
    });
    void context.stop.turned.then(() => this.#questions?.close());
  }

  /** Takes a record of the extension; `id` of the dialog that waits for an answer. */
  take(id: string | null, record: FenceRecord): void {
    if (record.kind === 'ready') this.#tellReady(record.tools);
    else if (record.kind === 'dropped') this.#dropped(record.toolCallId);
    else if (record.kind === 'begin') void this.#answer(id, record);
    else {
      this.#ended(record);
      this.#reply(id, {});
    }
  }

  /** Looks for decisions. */
  look(): void {
    this.#questions?.look();
  }

  /** Leaves open what is open, and looks no more. */
  dispose(): void {
    this.#questions?.close();
  }

  /** Whether the tool's events are written here and not from Pi's own. */
  writes(tool: string): boolean {
    return !this.plain.includes(tool);
  }

  /** Pi has done with a call: if nothing was told of its end, its end is told now. */
  piEnded(end: EventData['tool.end'], given: unknown): void {
    const { toolCallId, tool, result } = end;
    const begun = this.#calls.get(toolCallId);
    if (begun?.stage === 'asked') this.#dropped(toolCallId);
    this.#calls.delete(toolCallId);
    if (begun?.stage === 'started') this.#emit('tool.end', { ...end, fenced: true });
    if (begun !== undefined) return;
    const call = { toolCallId, tool, arguments: given };
    this.#emit('tool.refused', { ...call, by: 'fence', reason: result });
  }

  /** Writes that an approved call starts, which the wrapper itself will run. False: it must not. */
  startGranted(call: Told, fingerprint: string, approvalId: string): boolean {
    return 'go' in this.#start({ ...call, fingerprint, stage: 'refused' }, approvalId);
  }

  /** Writes its end. */
  endGranted(end: Omit<EndRecord, 'kind'>): void {
    this.#ended({ kind: 'end', ...end });
    this.#calls.delete(end.toolCallId);
  }

  /** A call as it may be written. */
  told(toolCallId: string, tool: string, given: unknown): Told {
    const clean = redactValue(this.#context.redact, given ?? null);
    return { toolCallId, tool, arguments: boundValue(clean, ARGUMENTS_BYTES) };
  }

  get #policy() {
    return this.#context.launch.approvals?.policy ?? OPEN_POLICY;
  }

  async #answer(id: string | null, record: BeginRecord): Promise<void> {
    let answer: FenceAnswer;
    try {
      answer = await this.#begin(record);
    } catch (error) {
      this.#context.warn(`A call could not be judged: ${String(error)}`);
      answer = { refused: `Not run: outlive could not judge it: ${String(error)}` };
    }
    // Of a refusal the model would hear in one more request; Pi is about to be told to abort.
    const isStopped = this.#context.stop.request !== null;
    if (!isStopped || 'go' in answer) this.#reply(id, answer);
  }

  #reply(id: string | null, answer: object): void {
    if (id === null) return;
    this.#send({ type: 'extension_ui_response', id, value: JSON.stringify(answer) });
  }

  async #begin(record: BeginRecord): Promise<FenceAnswer> {
    const { toolCallId, tool, cwd, foreign } = record;
    const stage = this.#calls.get(toolCallId)?.stage;
    if (stage === 'asked' || stage === 'started') return { refused: 'Not run: its id is in use' };
    this.#calls.delete(toolCallId);
    if (this.#context.stop.request !== null) return { refused: STOPPED };
    const call = { tool, arguments: record.arguments, cwd };
    const told = this.told(toolCallId, tool, record.arguments);
    const begun: Begun = { ...told, fingerprint: sha256(fingerprintText(call)), stage: 'refused' };
    const forbidden = forbiddenPath(this.#context, call);
    if (forbidden !== null) return this.#refuse(begun, 'fence', forbidden);
    const granted = this.#grants.spend(begun.fingerprint);
    if (granted !== null) return this.#start(begun, granted);
    const { cwd: tree } = this.#context.launch;
    const { effect, rule } = decide(this.#policy, call, insideOf(tree, cwd, this.#home));
    const reason = rule?.reason ?? null;
    if (effect === 'deny') {
      return this.#refuse(begun, 'policy', reason ?? 'the policy of this run denies it');
    }
    if (foreign && (effect !== 'allow' || rule?.tool !== tool)) return this.#unfenced(begun);
    return effect === 'allow' ? this.#start(begun) : this.#ask(begun, call, reason);
  }

  get #home(): string | undefined {
    return this.#context.environment['HOME'];
  }

  #unfenced(call: Begun): FenceAnswer {
    const reason = `${call.tool} is a tool that outlive cannot fence; it runs only where a rule of the policy allows it by its name`;
    return this.#refuse(call, 'fence', reason);
  }

  async #ask(begun: Begun, call: Call, reason: string | null): Promise<FenceAnswer> {
    const { launch, redact, stop } = this.#context;
    if (launch.approvals === null || this.#questions === null) return this.#unfenced(begun);
    const diff = callDiff(call, this.#home, redact);
    const expiresAt = new Date(Date.now() + launch.approvals.expiresMs).toISOString();
    const facts = { fingerprint: begun.fingerprint, cwd: call.cwd, diff, reason, expiresAt };
    const toolCallId = this.#askedAs(begun.toolCallId);
    begun.askedAs = toolCallId;
    if (!this.#emit('approval.requested', { ...toldOf(begun), ...facts, toolCallId })) {
      return { refused: NOT_WRITTEN };
    }
    this.#enter(begun, 'asked');
    const decision = await this.#questions.wait(toolCallId, begun.fingerprint);
    if (begun.stage !== 'asked') return { refused: 'Not run: it was dropped' };
    if (decision === null || stop.request !== null) return { refused: STOPPED };
    return this.#decided(begun, decision);
  }

  /** One question, one id: an answer to an earlier call of the same id must not be this one's. */
  #askedAs(toolCallId: string): string {
    const times = (this.#asked.get(toolCallId) ?? 0) + 1;
    this.#asked.set(toolCallId, times);
    return times === 1 ? toolCallId : `${toolCallId}~${times}`;
  }

  #decided(begun: Begun, { decision, reason, approvalId }: Decision): FenceAnswer {
    this.#resolved(begun, decision);
    if (decision === 'approved') return this.#start(begun, approvalId);
    return this.#refuse(begun, 'person', reason ?? 'without a reason');
  }

  #resolved(
    { toolCallId, askedAs = toolCallId, fingerprint }: Begun,
    resolution: EventData['approval.resolved']['resolution'],
  ): void {
    this.#emit('approval.resolved', { toolCallId: askedAs, fingerprint, resolution });
  }

  #start(begun: Begun, approvalId?: string): FenceAnswer {
    const { fingerprint } = begun;
    const spent = approvalId === undefined ? {} : { approvalId };
    const data = { ...toldOf(begun), fenced: true, fingerprint, ...spent } as const;
    const isWritten = this.#emit('tool.start', data);
    this.#enter(begun, isWritten ? 'started' : 'refused');
    return isWritten ? { go: true } : { refused: NOT_WRITTEN };
  }

  #refuse(begun: Begun, by: 'policy' | 'person' | 'fence', reason: string): FenceAnswer {
    this.#enter(begun, 'refused');
    this.#emit('tool.refused', { ...toldOf(begun), by, reason });
    const who = { policy: 'Refused by the policy', person: 'Denied by a person', fence: 'Refused' };
    return { refused: `${who[by]}: ${reason}` };
  }

  #ended({ toolCallId, tool, isError, result: whole, durationMs }: EndRecord): void {
    const begun = this.#calls.get(toolCallId);
    if (begun?.stage !== 'started') return;
    begun.stage = 'ended';
    const result = cutMiddle(this.#context.redact(whole), RESULT_BYTES);
    const digest = sha256(whole);
    const data = { toolCallId, tool, isError, result, durationMs, fenced: true, digest } as const;
    this.#emit('tool.end', data);
  }

  /** Pi gave it up: while a person was asked, or between our "go" and its act. */
  #dropped(toolCallId: string): void {
    const begun = this.#calls.get(toolCallId);
    if (begun?.stage === 'started') {
      const { tool } = begun;
      const result = 'It did not run: it was aborted first';
      this.#ended({ kind: 'end', toolCallId, tool, isError: true, result, durationMs: null });
    } else if (begun?.stage === 'asked' && this.#context.stop.request !== null) {
      begun.stage = 'left';
    } else if (begun?.stage === 'asked') {
      this.#resolved(begun, 'dropped');
      this.#refuse(begun, 'fence', 'it was aborted while a person was asked');
    }
    this.#questions?.drop(begun?.askedAs ?? toolCallId);
  }

  #enter(begun: Begun, stage: Stage): void {
    begun.stage = stage;
    this.#calls.set(begun.toolCallId, begun);
  }
}

const toldOf = ({ toolCallId, tool, arguments: given }: Told): Told => ({
  toolCallId,
  tool,
  arguments: given,
});
