/**
 * The transcript of a Pi run: its events as a person reads them, in a bounded file that
 * grows while the run does. What the model thought is left out.
 */
import { cutMiddle } from './bounded-text.ts';
import type { Capture } from './capture.ts';
import type { EventData } from './event-data.ts';
import { isObject } from './json.ts';

const CALL_BYTES = 400;
const RESULT_BYTES = 2 * 1024;
/** The argument that says most about a call, in the order of preference. */
const TELLING = ['command', 'path', 'file_path', 'pattern', 'url', 'query'];

type Said = { [Type in keyof EventData]: { type: Type; data: EventData[Type] } }[keyof EventData];

export class Transcript {
  readonly #capture: Capture;
  /** What the model says has not come to the end of a line. */
  #open = false;

  /** Writes to `capture`, which redacts and bounds. */
  constructor(capture: Capture) {
    this.#capture = capture;
  }

  /** Adds an event, if it is worth reading. */
  push<Type extends keyof EventData>(type: Type, data: EventData[Type]): void {
    const said = { type, data } as Said;
    if (said.type === 'agent.message') this.#message(said.data);
    else for (const line of linesOf(said)) this.#line(line);
  }

  /** The end of the run; nothing may follow. */
  finish({ verdict, code, message }: EventData['runner.finished']): void {
    const why = [code, message].filter((part) => part !== null).join(': ');
    this.#line(`\n· Ended: ${verdict}${why === '' ? '' : `, ${why}`}`);
    this.#capture.finish();
  }

  #message(data: EventData['agent.message']): void {
    if ('end' in data) {
      if (data.errorMessage !== null) this.#line(`✗ ${data.errorMessage}`);
      else if (this.#open) this.#line('');
      return;
    }
    if (data.replace === true) this.#line('· What was said last is replaced by:');
    if (data.delta === '') return;
    this.#write(data.delta);
    this.#open = !data.delta.endsWith('\n');
  }

  #line(text: string): void {
    if (this.#open) this.#write('\n');
    this.#open = false;
    this.#write(`${text}\n`);
  }

  #write(text: string): void {
    this.#capture.push(Buffer.from(text));
  }
}

function linesOf({ type, data }: Said): string[] {
  switch (type) {
    case 'started':
      return data.runner === 'pi' ? [startText(data.piVersion, data.model), ''] : [];
    case 'tool.start':
      return [`→ ${callText(data)}`];
    case 'tool.end':
      return toolEnd(data);
    case 'tool.refused':
      return [`✗ ${callText(data)}: refused by ${data.by}: ${data.reason}`];
    case 'approval.requested':
      return [`? ${callText(data)}: waits for a person`];
    case 'approval.resolved':
      return [`? ${data.resolution}`];
    case 'progress':
      return data.kind === 'tool_call_stream' ? [] : [`· ${data.message}`];
    case 'attempt.told_to_stop':
      return [`· Told to stop by ${data.by}${data.reason === null ? '' : `: ${data.reason}`}`];
    case 'attempt.deadline':
      return [`· Its hard timeout of ${data.hardTimeoutMs / 1000} s is over`];
    default:
      return [];
  }
}

const startText = (version: string | null, model: string | null): string =>
  `· Pi${version === null ? '' : ` ${version}`}${model === null ? '' : ` with ${model}`}`;

/** One line, to know a call by. */
function callText({ tool, arguments: value }: { tool: string; arguments: unknown }): string {
  const fields = isObject(value) ? value : {};
  const telling = TELLING.map((name) => fields[name]).find((item) => typeof item === 'string');
  const text = typeof telling === 'string' ? telling : JSON.stringify(value ?? {});
  return `${tool} ${cutMiddle(text, CALL_BYTES).replaceAll(/\s+/g, ' ')}`;
}

function toolEnd({ tool, isError, result, durationMs }: EventData['tool.end']): string[] {
  const took = durationMs === null ? '' : ` ${(durationMs / 1000).toFixed(1)} s`;
  const text = cutMiddle(result, RESULT_BYTES).trimEnd();
  const lines = text === '' ? [] : text.split('\n').map((line) => `  ${line}`);
  return [`${isError ? '✗' : '✓'} ${tool}${took}`, ...lines, ''];
}
