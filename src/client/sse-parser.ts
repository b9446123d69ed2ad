/** Server-sent events (WHATWG HTML, section 9.2.6), as a push parser over raw bytes. */

export interface SseMessage {
  /** `id:` of this message or of an earlier one; empty while there was none. */
  readonly id: string;
  /** `event:` of this message, `message` when it has none. */
  readonly event: string;
  /** All `data:` lines, joined by a line feed. */
  readonly data: string;
}

/**
 * Feeds on chunks cut anywhere, even inside a character or between CR and LF.
 * A message without its closing blank line is never handed out: the connection
 * was lost in the middle of it, and the server will send it again.
 */
export class SseParser {
  readonly #decoder = new TextDecoder();
  #line = '';
  #afterCarriageReturn = false;
  #id = '';
  #event = '';
  #data: string[] = [];

  /** The messages that this chunk completes. */
  push(chunk: Uint8Array): SseMessage[] {
    // TextDecoder drops a leading byte order mark, as the format wants it.
    const text = this.#decoder.decode(chunk, { stream: true });
    const messages: SseMessage[] = [];
    let start = 0;
    for (let index = 0; index < text.length; index++) {
      const unit = text[index];
      const isLineFeed = unit === '\n';
      if (isLineFeed && this.#afterCarriageReturn) {
        start = index + 1; // The second half of a CRLF.
      } else if (isLineFeed || unit === '\r') {
        const message = this.#endLine(this.#line + text.slice(start, index));
        if (message) messages.push(message);
        start = index + 1;
      }
      this.#afterCarriageReturn = unit === '\r';
    }
    this.#line += text.slice(start);
    return messages;
  }

  #endLine(line: string): SseMessage | null {
    this.#line = '';
    if (line === '') return this.#dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) return null; // A comment: the server's keepalive.
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#event = value;
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
    return null;
  }

  #dispatch(): SseMessage | null {
    const message = { id: this.#id, event: this.#event || 'message', data: this.#data.join('\n') };
    const isEmpty = this.#data.length === 0;
    this.#event = '';
    this.#data = [];
    return isEmpty ? null : message;
  }
}
