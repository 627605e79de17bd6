package store

import "crypto/rand"

// applicationID marks a file as an index of paddock's: "pdck".
const applicationID = 0x7064636b

// migration brings a file from one version of the schema to the next. It runs
// in a transaction of its own, together with the new version's number. One
// that cannot fill what it adds marks the index as incomplete.
type migration func(*conn) error

// migrations lead from an empty file to the present schema: the one at i makes
// version i+1 of version i. They are only ever added to.
var migrations = []migration{first}

// first makes the schema's version 1. Only what is asked for has an index: each
// is a page more to write after every run. The table total holds sums over each
// owner's sessions, which triggers keep, so that they cost nothing to read.
func first(c *conn) error {
	return c.run(`
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('complete', '0'), ('generation', '` + rand.Text() + `');
CREATE TABLE session (
  owner TEXT NOT NULL, id TEXT NOT NULL, folder TEXT NOT NULL,
  isolation TEXT NOT NULL, language TEXT NOT NULL, name TEXT NOT NULL,
  created_at INTEGER NOT NULL, last_used_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  executions INTEGER NOT NULL, tree_bytes INTEGER NOT NULL, checkpoints INTEGER NOT NULL, head INTEGER NOT NULL,
  record BLOB, name_sum INTEGER NOT NULL
);
CREATE UNIQUE INDEX session_key ON session (owner, id);
CREATE INDEX session_expires ON session (expires_at);
CREATE TABLE gone (owner TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (owner, id)) WITHOUT ROWID;
CREATE INDEX gone_at ON gone (at);
CREATE TABLE total (owner TEXT PRIMARY KEY, sessions INTEGER NOT NULL, tree_bytes INTEGER NOT NULL, name_sums INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER session_added AFTER INSERT ON session BEGIN
  INSERT INTO total VALUES (new.owner, 1, new.tree_bytes, new.name_sum) ON CONFLICT (owner) DO UPDATE SET
    sessions = sessions + 1, tree_bytes = tree_bytes + excluded.tree_bytes, name_sums = name_sums + excluded.name_sums;
END;
CREATE TRIGGER session_changed AFTER UPDATE OF tree_bytes ON session WHEN new.tree_bytes <> old.tree_bytes BEGIN
  UPDATE total SET tree_bytes = tree_bytes + new.tree_bytes - old.tree_bytes WHERE owner = new.owner;
END;
CREATE TRIGGER session_removed AFTER DELETE ON session BEGIN
  UPDATE total SET sessions = sessions - 1, tree_bytes = tree_bytes - old.tree_bytes, name_sums = name_sums - old.name_sum WHERE owner = old.owner;
END;
`)
}

const sessionColumns = `owner, id, folder, isolation, language, name, created_at, last_used_at, expires_at, executions, tree_bytes, checkpoints, head, record`

// The statements. They are prepared when a file is opened, which shows whether
// it has the tables that its version promises.
const (
	begin       = `BEGIN`
	beginWrite  = `BEGIN IMMEDIATE`
	commit      = `COMMIT`
	rollback    = `ROLLBACK`
	userVersion = `PRAGMA user_version`

	getMeta = `SELECT value FROM meta WHERE name = ?`
	setMeta = `INSERT OR REPLACE INTO meta VALUES (?, ?)`

	// Of two rows of the same session the newer stays: a process that could not
	// write for a while may come with an older one late.
	putSession = `INSERT INTO session (` + sessionColumns + `, name_sum) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
ON CONFLICT (owner, id) DO UPDATE SET folder = excluded.folder, isolation = excluded.isolation, language = excluded.language, name = excluded.name,
  created_at = excluded.created_at, last_used_at = excluded.last_used_at, expires_at = excluded.expires_at, executions = excluded.executions,
  tree_bytes = excluded.tree_bytes, checkpoints = excluded.checkpoints, head = excluded.head, record = excluded.record
WHERE excluded.created_at <> created_at OR (excluded.head, excluded.last_used_at) >= (head, last_used_at)`
	deleteSession = `DELETE FROM session WHERE owner = ? AND id = ?`
	putGone       = `INSERT OR REPLACE INTO gone VALUES (?, ?, ?)`
	deleteGone    = `DELETE FROM gone WHERE at < ?`

	// What a rebuild read does not come back where it was deleted meanwhile.
	restoreSession = `INSERT INTO session (` + sessionColumns + `, name_sum) SELECT ?,?,?,?,?,?,?,?,?,?,?,?,?,?,?
WHERE NOT EXISTS (SELECT 1 FROM gone WHERE owner = ?1 AND id = ?2 AND at >= ?16) ON CONFLICT DO NOTHING`

	getSessions    = `SELECT ` + sessionColumns + ` FROM session WHERE owner = ?`
	getExpired     = `SELECT ` + sessionColumns + ` FROM session WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?`
	getTotals      = `SELECT sessions, tree_bytes, name_sums FROM total WHERE owner = ?`
	getSize        = `SELECT tree_bytes FROM session WHERE owner = ? AND id = ?`
	getSizes       = `SELECT id, tree_bytes FROM session WHERE owner = ?`
	getStates      = `SELECT owner, id, created_at, head, last_used_at FROM session`
	getOwnerStates = getStates + ` WHERE owner = ?`
)

var statements = []string{
	begin, beginWrite, commit, rollback, userVersion, getMeta, setMeta, putSession, deleteSession, putGone, deleteGone,
	restoreSession, getSessions, getExpired, getTotals, getSize, getSizes, getStates, getOwnerStates,
}
