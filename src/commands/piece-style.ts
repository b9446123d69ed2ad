/** How the pieces of a transcript look where colour is wanted. */
import type { Output, Style } from './output.ts';
import type { Piece } from './transcript.ts';

const STYLES: Partial<Record<Piece['kind'], Style>> = {
  thought: ['dim', 'italic'],
  tool: 'cyan',
  tool_output: 'dim',
  tool_failed: 'red',
  note: 'dim',
};
const INDENTS: Partial<Record<Piece['kind'], string>> = { tool_output: '  │ ', note: '· ' };

/** A whole line of a transcript, without its line feed. */
export function styled(piece: Piece, output: Output): string {
  const style = STYLES[piece.kind];
  const text = (INDENTS[piece.kind] ?? '') + piece.text;
  return style === undefined ? text : output.paint(style, text);
}
