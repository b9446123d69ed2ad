/** Makes one work tree after the other, to be killed at it. Arguments: root, repository. */
import path from 'node:path';
import { createWorktrees } from '../../../src/linear/worktrees.ts';
import { repositoryOf } from '../../support/linear-trees.ts';

const [root = '', clone = '', first = '0'] = process.argv.slice(2);
const trees = createWorktrees({
  trees: path.join(root, 'trees'),
  records: path.join(root, 'records'),
  locks: path.join(root, 'locks'),
  environment: { PATH: process.env['PATH'] ?? '', HOME: root },
});
process.stdout.write('begun\n');
for (let number = Number(first); ; number++) {
  const issue = { key: `issue-${number}`, identifier: `ENG-${number}`, branchName: null };
  await trees.ensure(repositoryOf({ path: clone, fetch: false }), issue);
  process.stdout.write(`${number}\n`);
  await trees.tidy([issue.key], { isOpen: () => false });
}
