/**
 * Approvals between daemon and wrapper: what a call is known by, the policy, and the
 * files that carry a person's decision into the unit.
 *
 * Types and pure functions without a schema library: the wrapper pays for each import.
 */
import { canonicalJson } from './canonical-json.ts';

/** What a policy says of a call. */
export type ToolEffect = 'allow' | 'ask' | 'deny';

/** One rule; everything it names must hold. */
export interface ToolRule {
  readonly effect: ToolEffect;
  /** Name of the tool, `*` for all. */
  readonly tool: string;
  /**
   * A regular expression, searched in the named argument, or in each text of the arguments
   * when none is named (`/command` of bash, `/path` of edit and write).
   */
  readonly argument?: { readonly name?: string | undefined; readonly pattern: string } | undefined;
  /** Holds when a path the call names lies inside, or outside, the work tree (links resolved). */
  readonly path?: 'inside' | 'outside' | undefined;
  /** Told to the person who is asked, or to the model that is refused. */
  readonly reason?: string | undefined;
}

/** Rules in order, the first that holds decides; `otherwise` when none does. */
export interface ToolPolicy {
  readonly rules: readonly ToolRule[];
  readonly otherwise: ToolEffect;
}

/** Everything goes: what a run without a policy has. The fence records its calls all the same. */
export const OPEN_POLICY: ToolPolicy = { rules: [], otherwise: 'allow' };

export interface Call {
  readonly tool: string;
  readonly arguments: unknown;
  /** Where it runs. */
  readonly cwd: string;
}

/** The text whose SHA-256 (hex) is the fingerprint of a call: equal calls, equal text. */
export const fingerprintText = ({ tool, arguments: given, cwd }: Call): string =>
  canonicalJson({ tool, arguments: given, cwd });

/** A decision, as the file in the decisions directory holds it. Only the daemon writes those. */
export interface Decision {
  readonly v: 1;
  readonly approvalId: string;
  /** The attempt that may act on it. */
  readonly attemptId: string;
  readonly toolCallId: string;
  readonly fingerprint: string;
  readonly decision: 'approved' | 'denied';
  /** A person's words to the model; null for none. */
  readonly reason: string | null;
  readonly decidedAt: string;
}
/** With an Ed25519 signature, base64, over {@link decisionText}. */
export interface SignedDecision extends Decision {
  readonly signature: string;
}

/** What is signed. */
export const decisionText = ({ v, ...decision }: Decision): string =>
  canonicalJson({ v, ...decision });

/** Name of the decision's file: `sha256` is the SHA-256 of the call's id, in hex. */
export const decisionFileName = (sha256: string): string => `${sha256}.json`;

/** What an earlier attempt asked for and a person decided, handed to the attempt that replaces it. */
export interface Grant {
  readonly approvalId: string;
  readonly toolCallId: string;
  readonly tool: string;
  readonly fingerprint: string;
  /** As spooled, so redacted: of use only where their fingerprint is the approved one. */
  readonly arguments: unknown;
  /** Where the call would have run. */
  readonly cwd: string;
  readonly decision: 'approved' | 'denied';
  readonly reason: string | null;
  /** The wrapper runs it itself; otherwise it holds for one identical call of the model. */
  readonly execute: boolean;
}

/** The part of launch.json about approvals. */
export interface ApprovalSpec {
  readonly policy: ToolPolicy;
  /** How long a question may stay open, milliseconds. */
  readonly expiresMs: number;
  /** Absolute; files in it are named by {@link decisionFileName}. Read-only in the unit. */
  readonly decisions: string;
  /** Ed25519, SubjectPublicKeyInfo in DER, base64. */
  readonly publicKey: string;
  readonly grants: readonly Grant[];
}
