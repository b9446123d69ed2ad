// Import directions (docs/concepts.md "Rooms"). ops/scripts/check-imports.mjs runs this and
// fails when it saw no modules: a check that sees nothing must not pass.
const room = (name) => `^src/${name}/`;
const only = (from, allowed) => ({
  name: `${from}-imports-only`,
  comment: `src/${from} may import only: ${allowed.join(', ') || 'itself'}`,
  severity: 'error',
  from: { path: room(from) },
  to: {
    path: '^src/',
    pathNot: [
      room(from),
      ...allowed.map((name) =>
        name.endsWith('.ts') ? `^src/${name.replace('.', '\\.')}$` : room(name),
      ),
    ],
  },
});

module.exports = {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    only('domain', []),
    only('store', ['domain']),
    only('executor', ['domain']),
    only('systemd', ['domain', 'executor']),
    only('attempt', ['domain']),
    only('supervisor', ['domain', 'store', 'executor']),
    only('recovery', ['domain', 'store', 'executor', 'supervisor']),
    only('linear', ['domain', 'store', 'supervisor']),
    only('drivers', ['domain', 'store', 'supervisor']),
    only('api', ['domain', 'store', 'supervisor']),
    only('linear', ['domain', 'store', 'executor', 'supervisor']),
    only('client', [
      'domain',
      'api/schemas.ts',
      'api/schemas-approvals.ts',
      'api/schemas-artifacts.ts',
      'api/schemas-drivers.ts',
      'api/schemas-explain.ts',
      'api/schemas-ledger.ts',
      'api/schemas-linear.ts',
      'api/schemas-maintenance.ts',
      'api/schemas-runtime.ts',
      'api/schemas-provider.ts',
    ]),
    only('commands', [
      'domain',
      'client',
      'systemd',
      'api/schemas.ts',
      'api/schemas-approvals.ts',
      'api/schemas-artifacts.ts',
      'api/schemas-drivers.ts',
      'api/schemas-explain.ts',
      'api/schemas-ledger.ts',
      'api/schemas-maintenance.ts',
      'api/schemas-runtime.ts',
      'api/schemas-linear.ts',
      'linear/trial.ts',
      'linear/debris.ts',
      'store/restore.ts',
      'api/schemas-provider.ts',
      'config.ts',
      'layout.ts',
      'sandbox-trial.ts',
      'version.ts',
    ]),
    {
      name: 'commands-reach-systemd-only-for-the-daemon',
      severity: 'error',
      from: { path: '^src/commands/', pathNot: '^src/commands/daemon' },
      to: { path: room('systemd') },
    },
    {
      name: 'workspace-lock-only-for-the-daemon',
      comment:
        'rows 007, 008: only the daemon that owns a workspace takes its locks or writes who it is; a restore keeps it out meanwhile',
      severity: 'error',
      from: {
        path: '^src/',
        pathNot: ['^src/daemon/ownership\\.ts$', '^src/store/(runtime-lock|restore)\\.ts$'],
      },
      to: { path: '^src/store/(runtime-lock|kernel-lock)\\.ts$' },
    },
    {
      name: 'the-inside-of-the-daemon-is-joined-in-one-place',
      severity: 'error',
      from: { path: '^src/', pathNot: ['^src/compose\\.ts$', '^src/daemon/'] },
      to: { path: '^src/daemon/' },
    },
    {
      name: 'domain-is-pure',
      comment: 'no node:* and of npm only zod',
      severity: 'error',
      from: { path: room('domain') },
      to: {
        dependencyTypes: ['core', 'npm', 'npm-dev', 'npm-optional'],
        pathNot: 'node_modules/zod',
      },
    },
    {
      name: 'sqlite-only-in-store',
      severity: 'error',
      from: { path: '^src/', pathNot: room('store') },
      to: { path: 'node_modules/(@types/)?better-sqlite3' },
    },
    {
      name: 'dbus-only-in-systemd',
      severity: 'error',
      from: { path: '^src/', pathNot: room('systemd') },
      to: { path: 'node_modules/dbus-next' },
    },
    {
      name: 'product-never-imports-tests',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|ops)/' },
    },
    {
      name: 'wrapper-loads-no-schema-library',
      comment: 'its start-up is paid on every attempt; types from files with zod are fine',
      severity: 'error',
      from: { path: room('attempt') },
      to: {
        path: '^src/domain/(spool|events|evidence|names|request|work-unit)\\.ts$',
        dependencyTypesNot: ['type-only'],
      },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    parser: 'swc',
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: {
      extensions: ['.ts', '.js', '.mjs'],
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default'],
    },
  },
};
