/** What a query costs: a field a tenth, an object one, a list as much as its page may hold. */
import {
  type DocumentNode,
  Kind,
  type OperationDefinitionNode,
  type SelectionSetNode,
} from 'graphql';

const DEFAULT_PAGE = 50;

/** Points of one operation, rounded up. Linear refuses more than 10 000 in one query. */
export function complexityOf(
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Readonly<Record<string, unknown>>,
): number {
  const cost = (set: SelectionSetNode): number =>
    set.selections.reduce((sum, selection) => {
      if (selection.kind === Kind.INLINE_FRAGMENT) return sum + cost(selection.selectionSet);
      if (selection.kind === Kind.FRAGMENT_SPREAD) {
        const named = document.definitions.find(
          (one) => one.kind === Kind.FRAGMENT_DEFINITION && one.name.value === selection.name.value,
        );
        return sum + (named?.kind === Kind.FRAGMENT_DEFINITION ? cost(named.selectionSet) : 0);
      }
      if (!selection.selectionSet) return sum + 0.1;
      const isList = selection.selectionSet.selections.some(
        (one) => one.kind === Kind.FIELD && one.name.value === 'nodes',
      );
      const page = selection.arguments?.find(({ name }) => /^(?:first|last)$/.test(name.value));
      const asked =
        page?.value.kind === Kind.VARIABLE
          ? Number(variables[page.value.name.value] ?? DEFAULT_PAGE)
          : page?.value.kind === Kind.INT
            ? Number(page.value.value)
            : DEFAULT_PAGE;
      return sum + (1 + cost(selection.selectionSet)) * (isList ? asked : 1);
    }, 0);
  return Math.max(1, Math.ceil(cost(operation.selectionSet)));
}
