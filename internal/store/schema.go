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
// is a page more to write after every run.
func first(c *conn) error {
	return c.run(`
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('complete', '0'), ('generation', '` + rand.Text() + `');
CREATE TABLE session (
  owner TEXT NOT NULL, id TEXT NOT NULL, folder TEXT NOT NULL,
  isolation TEXT NOT NULL, language TEXT NOT NULL, name TEXT NOT NULL,
  created_at INTEGER NOT NULL, last_used_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  executions INTEGER NOT NULL, tree_bytes INTEGER NOT NULL, checkpoints INTEGER NOT NULL, head INTEGER NOT NULL,
  record BLOB
);
CREATE UNIQUE INDEX session_key ON session (owner, id);
CREATE INDEX session_expires ON session (expires_at);
CREATE TABLE checkpoint (
  owner TEXT NOT NULL, session TEXT NOT NULL, number INTEGER NOT NULL, previous INTEGER NOT NULL,
  at INTEGER NOT NULL, label TEXT NOT NULL, cause TEXT NOT NULL, execution TEXT NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (owner, session, number)
) WITHOUT ROWID;
CREATE TABLE gone (owner TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (owner, id)) WITHOUT ROWID;
`)
}

const (
	sessionColumns    = `owner, id, folder, isolation, language, name, created_at, last_used_at, expires_at, executions, tree_bytes, checkpoints, head, record`
	checkpointColumns = `owner, session, number, previous, at, label, cause, execution, bytes`
)

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
	putSession = `INSERT INTO session (` + sessionColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)
ON CONFLICT (owner, id) DO UPDATE SET folder = excluded.folder, isolation = excluded.isolation, language = excluded.language, name = excluded.name,
  created_at = excluded.created_at, last_used_at = excluded.last_used_at, expires_at = excluded.expires_at, executions = excluded.executions,
  tree_bytes = excluded.tree_bytes, checkpoints = excluded.checkpoints, head = excluded.head, record = excluded.record
WHERE excluded.created_at <> created_at OR (excluded.head, excluded.last_used_at) >= (head, last_used_at)`
	deleteSession = `DELETE FROM session WHERE owner = ? AND id = ?`
	putGone       = `INSERT OR REPLACE INTO gone VALUES (?, ?, ?)`
	deleteGone    = `DELETE FROM gone WHERE at < ?`

	putCheckpoint        = `INSERT OR REPLACE INTO checkpoint (` + checkpointColumns + `) VALUES (?,?,?,?,?,?,?,?,?)`
	deleteCheckpoint     = `DELETE FROM checkpoint WHERE owner = ? AND session = ? AND number = ?`
	deleteCheckpoints    = `DELETE FROM checkpoint WHERE owner = ? AND session = ?`
	deleteCheckpointsTo  = `DELETE FROM checkpoint WHERE owner = ? AND session = ? AND number <= ?`
	deleteCheckpointRest = `DELETE FROM checkpoint WHERE owner = ?1 AND session NOT IN (SELECT id FROM session WHERE owner = ?1)`

	// What a rebuild read does not come back where it was deleted meanwhile.
	restoreSession = `INSERT INTO session (` + sessionColumns + `) SELECT ?,?,?,?,?,?,?,?,?,?,?,?,?,?
WHERE NOT EXISTS (SELECT 1 FROM gone WHERE owner = ?1 AND id = ?2 AND at >= ?15) ON CONFLICT DO NOTHING`

	getSessions    = `SELECT ` + sessionColumns + ` FROM session WHERE owner = ?`
	getOwners      = `SELECT DISTINCT owner FROM session ORDER BY owner`
	getExpired     = `SELECT ` + sessionColumns + ` FROM session WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?`
	getHeads       = `SELECT id, head FROM session WHERE owner = ?`
	getTotals      = `SELECT count(*), coalesce(sum(tree_bytes), 0), coalesce(sum(checkpoints), 0) FROM session WHERE owner = ?`
	getCheckpoints = `SELECT ` + checkpointColumns + ` FROM checkpoint WHERE owner = ? AND session = ? ORDER BY number`
	getStates      = `SELECT owner, id, created_at, head, last_used_at FROM session`
	getOwnerStates = getStates + ` WHERE owner = ?`
)

var statements = []string{
	begin, beginWrite, commit, rollback, userVersion, getMeta, setMeta, putSession, deleteSession, putGone, deleteGone,
	putCheckpoint, deleteCheckpoint, deleteCheckpoints, deleteCheckpointsTo, deleteCheckpointRest, restoreSession,
	getSessions, getOwners, getExpired, getHeads, getTotals, getCheckpoints, getStates, getOwnerStates,
}
