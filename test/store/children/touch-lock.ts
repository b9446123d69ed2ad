/**
 * Holds the shared lock that a daemon holds for an instant while it tries to become owner,
 * for a little longer than an instant, and ends. argv: state directory
 */
import path from 'node:path';
import Database from 'better-sqlite3';

const db = new Database(path.join(process.argv[2] ?? '', 'runtime.lock.db'));
db.exec('BEGIN');
db.prepare('SELECT count(*) FROM sqlite_schema').get();
process.stdout.write(`${JSON.stringify({ touching: true })}\n`);
setTimeout(() => db.close(), 20);
