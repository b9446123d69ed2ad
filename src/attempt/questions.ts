/**
 * Calls that wait for a person. The question is an event; the answer is a signed file, looked for
 * when the daemon says so, when the directory changes, and now and again in case both were missed.
 * How long a question may stay open is the daemon's to say: here it only waits.
 */
import type { KeyObject } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import type { ApprovalSpec, Decision } from '../domain/decisions.ts';
import {
  checkDecision,
  publicKeyOf,
  readDecision,
  type Subject,
  sha256,
} from './decision-files.ts';
import type { Emit } from './event-data.ts';

const LOOK_EVERY_MS = 5_000;

interface Question extends Subject {
  readonly settle: (decision: Decision | null) => void;
}

export class Questions {
  readonly #spec: Pick<ApprovalSpec, 'decisions' | 'publicKey'>;
  readonly #attemptId: string;
  readonly #emit: Emit;
  readonly #key: KeyObject;
  readonly #open = new Map<string, Question>();
  /** A decision counts once: a model may use the id of a call again. */
  readonly #spent = new Set<string>();
  /** Contents of files that were told to mean nothing. */
  readonly #ignored = new Set<string>();
  #watcher: FSWatcher | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** Reads the key. Throws when it is none. */
  constructor(spec: Pick<ApprovalSpec, 'decisions' | 'publicKey'>, attemptId: string, emit: Emit) {
    this.#spec = spec;
    this.#attemptId = attemptId;
    this.#emit = emit;
    this.#key = publicKeyOf(spec.publicKey);
  }

  /** Waits for the decision on a call whose question is on the disk; null when it was dropped. */
  wait(toolCallId: string, fingerprint: string): Promise<Decision | null> {
    const answer = new Promise<Decision | null>((settle) => {
      this.#open.set(toolCallId, { attemptId: this.#attemptId, toolCallId, fingerprint, settle });
    });
    this.#watch();
    this.look();
    return answer;
  }

  /** The call is no more: nobody waits for its answer. */
  drop(toolCallId: string): void {
    this.#settle(toolCallId, null);
  }

  /** Looks for the decisions of all open questions. */
  look(): void {
    for (const question of this.#open.values()) {
      const { toolCallId } = question;
      const text = readDecision(this.#spec.decisions, toolCallId);
      if (text === null) continue;
      const decision = this.#check(text, question);
      if (typeof decision === 'string') this.#ignore(toolCallId, text, decision);
      else this.#settle(toolCallId, decision);
    }
  }

  /** Leaves every question as it is, without an answer, and looks no more. */
  close(): void {
    this.#open.clear();
    this.#unwatch();
  }

  #check(text: string, question: Question): Decision | string {
    const decision = checkDecision(text, this.#key, question);
    const isSpent = typeof decision !== 'string' && this.#spent.has(decision.approvalId);
    return isSpent ? 'it was acted on before' : decision;
  }

  #settle(toolCallId: string, decision: Decision | null): void {
    const question = this.#open.get(toolCallId);
    if (question === undefined) return;
    this.#open.delete(toolCallId);
    if (decision !== null) this.#spent.add(decision.approvalId);
    if (this.#open.size === 0) this.#unwatch();
    question.settle(decision);
  }

  #ignore(toolCallId: string, text: string, why: string): void {
    const content = sha256(text);
    if (this.#ignored.has(content)) return;
    this.#ignored.add(content);
    const message = `A decision about call ${toolCallId} was ignored: ${why}`;
    this.#emit('progress', { kind: 'decision_ignored', message, toolCallId, sha256: content });
  }

  #watch(): void {
    this.#timer ??= setInterval(() => {
      this.#watchDirectory();
      this.look();
    }, LOOK_EVERY_MS);
    this.#watchDirectory();
  }

  /** Where it cannot be watched, or is not there yet, looking now and again has to do. */
  #watchDirectory(): void {
    if (this.#watcher !== null) return;
    try {
      const watcher = watch(this.#spec.decisions, () => this.look());
      this.#watcher = watcher;
      watcher.on('error', () => {
        watcher.close();
        this.#watcher = null;
      });
    } catch {
      this.#watcher = null;
    }
  }

  #unwatch(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#watcher?.close();
    this.#watcher = null;
  }
}
