/** Pi's events that become a `progress` line, and the dialogs of its extensions. */
import { cutMiddle } from './bounded-text.ts';
import type { ProgressData } from './event-data.ts';
import { fenceRecordOf } from './fence-record.ts';
import { type JsonObject, numberOf, objectOf, parseJson, stringOf } from './json.ts';
import type { PiOutput } from './pi-output.ts';
import { ANSWER_NOTICE } from './retry-after.ts';

const NOTE_BYTES = 2 * 1024;

const short = (value: unknown): string => cutMiddle(stringOf(value) ?? '', NOTE_BYTES);

const progress = (data: ProgressData): PiOutput[] => [{ kind: 'progress', data }];

/** The `progress` of an event that says something about the run itself; nothing for all others. */
export function noteOf(event: JsonObject): PiOutput[] {
  switch (event['type']) {
    case 'auto_retry_start':
    case 'summarization_retry_scheduled':
      return progress(retry(event));
    case 'auto_retry_end':
      return progress({
        kind: 'retry_end',
        message: event['success'] === true ? 'The retry succeeded' : short(event['finalError']),
        success: event['success'] === true,
        attempt: numberOf(event['attempt']),
      });
    case 'compaction_start':
      return progress({
        kind: 'compaction',
        message: `Compacting the conversation (${short(event['reason'])})`,
        phase: 'start',
        reason: short(event['reason']),
      });
    case 'compaction_end':
      return progress(compactionEnd(event));
    case 'extension_error':
      return progress({
        kind: 'extension_error',
        message: short(event['error']),
        extension: short(event['extensionPath']),
        event: short(event['event']),
      });
    default:
      return [];
  }
}

function retry(event: JsonObject): ProgressData {
  const [attempt, maxAttempts, delayMs] = ['attempt', 'maxAttempts', 'delayMs'].map((name) =>
    numberOf(event[name]),
  );
  return {
    kind: 'retry',
    message: `Retry ${attempt} of ${maxAttempts} in ${delayMs} ms: ${short(event['errorMessage'])}`,
    attempt,
    maxAttempts,
    delayMs,
    error: short(event['errorMessage']),
  };
}

function compactionEnd(event: JsonObject): ProgressData {
  const failed = stringOf(event['errorMessage']);
  const aborted = event['aborted'] === true;
  const ended = aborted ? 'The compaction was aborted' : 'The conversation was compacted';
  return {
    kind: 'compaction',
    message: failed === null ? ended : short(failed),
    phase: 'end',
    reason: short(event['reason']),
    ok: failed === null && !aborted,
    willRetry: event['willRetry'] === true,
    tokensBefore: numberOf(objectOf(event['result'])['tokensBefore']),
  };
}

const DIALOGS: ReadonlySet<unknown> = new Set(['select', 'confirm', 'input', 'editor']);

/**
 * An extension's dialog is answered at once with "no": only calls of tools are asked about, and
 * a question without an answer would wait until the deadline. What our own extension asks goes to
 * the fence.
 */
export function dialogOf(event: JsonObject): PiOutput[] {
  const id = stringOf(event['id']) ?? '';
  const method = stringOf(event['method']) ?? '';
  const title = short(event['title']);
  const said = stringOf(event['message']) ?? '';
  const record = fenceRecordOf(method === 'input' ? stringOf(event['title']) : said);
  if (record !== null) return [{ kind: 'fence', id: method === 'input' ? id : null, record }];
  if (method === 'notify' && said.startsWith(ANSWER_NOTICE)) {
    const answer = objectOf(parseJson(said.slice(ANSWER_NOTICE.length)));
    return [{ kind: 'failed_answer', headers: objectOf(answer['headers']) }];
  }
  if (method === 'notify') {
    return progress({
      kind: 'notice',
      message: short(event['message']),
      level: stringOf(event['notifyType']) ?? 'info',
    });
  }
  if (!DIALOGS.has(method)) return [];
  const denied = method === 'confirm';
  const answer = denied ? { confirmed: false } : { cancelled: true };
  return [
    {
      kind: 'dialog',
      answer: { type: 'extension_ui_response', id, ...answer },
      data: {
        kind: 'dialog',
        message: `An extension asked "${title}"; the answer was ${denied ? 'no' : 'cancel'}: nobody could be asked`,
        method,
        title,
        detail: short(event['message']),
        answer: denied ? 'denied' : 'cancelled',
      },
    },
  ];
}
