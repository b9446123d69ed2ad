/** The three completion scripts. Pure: spots of the command line go in, text comes out. */

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** What can follow at one place of the command line. */
export interface Spot {
  /** The words that lead here: `outlive daemon`. */
  readonly at: string;
  readonly commands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly {
    readonly words: readonly string[];
    readonly description: string;
    readonly takesValue: boolean;
    readonly choices: readonly string[];
  }[];
  /** Its first argument is a work unit. */
  readonly takesHandle: boolean;
  /** Values of its arguments. */
  readonly choices: readonly string[];
}

const HANDLES = "outlive ps 2>/dev/null | awk 'NR > 1 { print $1 }'";

const wordsAt = ({ commands, options, choices }: Spot): string =>
  [...commands.map(({ name }) => name), ...choices, ...options.flatMap(({ words }) => words)].join(
    ' ',
  );

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Patterns of `case` for every step down the command line. */
const steps = (spots: readonly Spot[]): string =>
  spots
    .slice(1)
    .map(({ at }) => `"${at}"`)
    .join('|');

/** Lines of `case` for what follows an option with a value: its choices, else files. */
function valueCases(
  spots: readonly Spot[],
  offer: (choices: string) => string,
  files: string,
): string {
  const taking = spots.flatMap(({ at, options }) =>
    options
      .filter(({ takesValue }) => takesValue)
      .map(({ words, choices }) => ({
        pattern: words.map((word) => `"${at} ${word}"`).join('|'),
        choices: choices.join(' '),
      })),
  );
  const byChoices = Map.groupBy(taking, ({ choices }) => choices);
  const lines = [...byChoices].map(([choices, options]) => {
    const patterns = options.map(({ pattern }) => pattern).join('|');
    return `    ${patterns}) ${choices === '' ? files : offer(choices)}; return ;;`;
  });
  return lines.join('\n');
}

function bash(spots: readonly Spot[]): string {
  const offer = (words: string): string => `COMPREPLY=($(compgen -W "${words}" -- "$cur"))`;
  const cases = spots.map((spot) => {
    const handles = spot.takesHandle ? ` $(${HANDLES})` : '';
    return `    "${spot.at}") ${offer(`${wordsAt(spot)}${handles}`)} ;;`;
  });
  return `# bash completion of outlive. Use: source <(outlive completion bash)
_outlive() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} at=outlive i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ \${COMP_WORDS[i]} == -- ]] && return
    case "$at \${COMP_WORDS[i]}" in
      ${steps(spots)}) at="$at \${COMP_WORDS[i]}" ;;
    esac
  done
  case "$at $prev" in
${valueCases(spots, offer, 'COMPREPLY=($(compgen -f -- "$cur"))')}
  esac
  case "$at" in
${cases.join('\n')}
  esac
}
complete -o default -F _outlive outlive
`;
}

function zsh(spots: readonly Spot[]): string {
  const offer = (words: string): string => `compadd -- ${words}`;
  const cases = spots.map((spot) => {
    const handles = spot.takesHandle ? ` \${(f)"$(${HANDLES})"}` : '';
    return `    "${spot.at}") ${offer(`${wordsAt(spot)}${handles}`)} ;;`;
  });
  return `#compdef outlive
# zsh completion of outlive. Use: outlive completion zsh > "\${fpath[1]}/_outlive"
_outlive() {
  local at=outlive prev=\${words[CURRENT-1]} i
  for ((i = 2; i < CURRENT; i++)); do
    [[ \${words[i]} == -- ]] && { _files; return }
    case "$at \${words[i]}" in
      ${steps(spots)}) at="$at \${words[i]}" ;;
    esac
  done
  case "$at $prev" in
${valueCases(spots, offer, '_files')}
  esac
  case "$at" in
${cases.join('\n')}
  esac
}
if [[ $funcstack[1] == _outlive ]]; then _outlive "$@"; else compdef _outlive outlive; fi
`;
}

/** fish calls the longest form \`-l\` and one letter \`-s\`. */
function fishOption(at: string, option: Spot['options'][number]): string {
  const names = option.words.map((word) =>
    word.startsWith('--') ? `-l ${word.slice(2)}` : `-s ${word.slice(1)}`,
  );
  const value = !option.takesValue
    ? ''
    : option.choices.length > 0
      ? ` -x -a ${quoted(option.choices.join(' '))}`
      : ' -r';
  return `complete -c outlive -n '__outlive_at "${at}"' ${names.join(' ')}${value} -d ${quoted(option.description)}`;
}

function fish(spots: readonly Spot[]): string {
  const known = spots
    .slice(1)
    .map(({ at }) => `'${at}'`)
    .join(' ');
  const lines = spots.flatMap((spot) => {
    const condition = `complete -c outlive -n '__outlive_at "${spot.at}"'`;
    const isClosed = spot.commands.length > 0 || spot.takesHandle || spot.choices.length > 0;
    return [
      ...(isClosed ? [`${condition} -f`] : []),
      ...spot.commands.map(
        ({ name, description }) => `${condition} -a ${name} -d ${quoted(description)}`,
      ),
      ...(spot.choices.length > 0 ? [`${condition} -a ${quoted(spot.choices.join(' '))}`] : []),
      ...(spot.takesHandle ? [`${condition} -a ${quoted(`(${HANDLES})`)}`] : []),
      ...spot.options.map((option) => fishOption(spot.at, option)),
    ];
  });
  return `# fish completion of outlive. Use: outlive completion fish > ~/.config/fish/completions/outlive.fish
function __outlive_at
  set -l at outlive
  for word in (commandline -opc)[2..-1]
    test "$word" = --; and return 1
    contains -- "$at $word" ${known}; and set at "$at $word"
  end
  test "$at" = "$argv[1]"
end
${lines.join('\n')}
`;
}

export const SCRIPTS: Readonly<Record<Shell, (spots: readonly Spot[]) => string>> = {
  bash,
  zsh,
  fish,
};
