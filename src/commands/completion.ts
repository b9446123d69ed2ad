/** `outlive completion`: scripts for shells, made from the very commands of the program. */
import { Argument, type Command, type Option } from 'commander';
import { EXIT } from '../domain/errors.ts';
import { SCRIPTS, SHELLS, type Shell, type Spot } from './completion-scripts.ts';
import { example, type Frame } from './context.ts';

const wordsOf = (option: Option): string[] =>
  [option.short, option.long].filter((word) => word !== undefined && word !== null);

/** Every command as a spot, the program itself first. */
export function spotsOf(program: Command): Spot[] {
  const visit = (command: Command, at: string, inherited: readonly Option[]): Spot[] => {
    const options = [...command.options, ...inherited].filter(({ hidden }) => !hidden);
    const help = command.createHelp();
    const children = help.visibleCommands(command).filter((child) => child.name() !== 'help');
    const spot: Spot = {
      at,
      commands: children.map((child) => ({ name: child.name(), description: child.description() })),
      options: [
        ...options.map((option) => ({
          words: wordsOf(option),
          description: option.description,
          takesValue: option.required || option.optional,
          choices: option.argChoices ?? [],
        })),
        { words: ['--help'], description: 'show help', takesValue: false, choices: [] },
      ],
      takesHandle: command.registeredArguments[0]?.name() === 'handle',
      choices: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
    };
    const global = command.parent === null ? command.options : inherited;
    const shared = global.filter(({ long }) => long !== '--version');
    return [spot, ...children.flatMap((child) => visit(child, `${at} ${child.name()}`, shared))];
  };
  return visit(program, program.name(), []);
}

/** Adds `completion` to the program. */
export function registerCompletion(program: Command, frame: Frame): void {
  program
    .command('completion')
    .description('Print a completion script for a shell.')
    .addArgument(new Argument('<shell>', 'which shell').choices(SHELLS))
    .addHelpText(
      'after',
      `
bash:  source <(outlive completion bash)
zsh:   outlive completion zsh > "\${fpath[1]}/_outlive"
fish:  outlive completion fish > ~/.config/fish/completions/outlive.fish
${example('outlive completion bash')}`,
    )
    .action(async (shell: Shell) => {
      // Needs no configuration and no daemon: it is run from start-up files.
      await frame.surroundings.stdout.write(SCRIPTS[shell](spotsOf(program)));
      frame.exitCode = EXIT.ok;
    });
}
