package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// conn is one connection to one file. One goroutine at a time uses it. Nothing
// that it does is bounded by a context: the driver would end the connection
// with it, and what there is to wait for is bounded anyway.
type conn struct {
	path     string
	db       *sql.DB
	sql      *sql.Conn
	prepared map[string]*sql.Stmt
	files    [3]fs.FileInfo // as they were found behind path when it was opened
}

// The files that SQLite keeps beside a database in WAL mode.
const (
	walSuffix = "-wal"
	shmSuffix = "-shm"
)

// What may be wrong with a file that can be opened.
var (
	errForeign = errors.New("store: the file is not an index of paddock's")
	errDamaged = errors.New("store: the file is damaged")
	errLogGone = errors.New("store: the file's log was deleted while it was open")
	errNewer   = errors.New("store: the file was made by a newer paddock")
)

// dial connects to the file at path, which exists; mode is "rw", or "rwc" to
// make it. It does not look into it yet.
func dial(path, mode string, timeout time.Duration) (*conn, error) {
	name := filepath.ToSlash(path)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // C:/…
	}
	u := url.URL{Scheme: "file", Path: name, RawQuery: url.Values{"mode": {mode}, "_dqs": {"0"}, "_defensive": {"1"}}.Encode()}
	connector, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, err
	}
	c := &conn{path: path, db: sql.OpenDB(connector), prepared: map[string]*sql.Stmt{}}
	c.db.SetMaxOpenConns(1)
	if c.sql, err = c.db.Conn(context.Background()); err != nil {
		c.close()
		return nil, err
	}
	// NORMAL: a loss of power can take the last transactions, but cannot damage
	// the file; the disk is only waited for when the log is moved into it, after
	// about 4 MB of changes.
	err = c.run(fmt.Sprintf(`PRAGMA busy_timeout = %d; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 4194304`, timeout.Milliseconds()))
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close ends the connection. As the last of all processes' it moves the log
// into the file and removes it; who calls it holds the lock, but for a file
// that is not at the index's name.
func (c *conn) close() {
	for _, s := range c.prepared {
		_ = s.Close() // what matters has been committed
	}
	if c.sql != nil {
		_ = c.sql.Close()
	}
	_ = c.db.Close()
}

// run executes statements that are needed once.
func (c *conn) run(text string) error {
	_, err := c.sql.ExecContext(context.Background(), text)
	return err
}

func (c *conn) prepare(text string) (*sql.Stmt, error) {
	if s := c.prepared[text]; s != nil {
		return s, nil
	}
	s, err := c.sql.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	c.prepared[text] = s
	return s, nil
}

func (c *conn) exec(text string, args ...any) error {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	_, err = s.Exec(args...)
	return err
}

// one reads a single value; sql.ErrNoRows when there is none.
func (c *conn) one(value any, text string, args ...any) error {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	return s.QueryRow(args...).Scan(value)
}

// each calls row for every row that the statement gives.
func (c *conn) each(row func(scan func(...any) error) error, text string, args ...any) error {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	rows, err := s.Query(args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// within runs f in a transaction that start begins; after an error nothing of
// it has happened.
func (c *conn) within(start string, f func() error) error {
	if err := c.exec(start); err != nil {
		return err
	}
	err := f()
	if err == nil {
		err = c.exec(commit)
	}
	if err != nil {
		_ = c.exec(rollback) // it may have been rolled back already
	}
	return err
}

// write runs f in a transaction that may write, unless a newer paddock has
// changed the schema meanwhile.
func (c *conn) write(version int, f func() error) error {
	return c.within(beginWrite, func() error {
		if err := c.checkVersion(version); err != nil {
			return err
		}
		return f()
	})
}

func (c *conn) checkVersion(version int) error {
	var there int
	if err := c.one(&there, userVersion); err != nil {
		return err
	}
	if there != version {
		return errNewer
	}
	return nil
}

// fit checks that the file is an index that this paddock can use, and brings
// it forward to the present schema. thorough looks at all of it.
func (c *conn) fit(schema []migration, thorough bool) error {
	var id, version int
	var mode string
	if err := errors.Join(c.one(&id, `PRAGMA application_id`), c.one(&version, userVersion), c.one(&mode, `PRAGMA journal_mode`)); err != nil {
		return err
	}
	switch {
	case id != applicationID || mode != "wal":
		return errForeign
	case version > len(schema):
		return errNewer
	}
	if thorough {
		var verdict string
		if err := c.one(&verdict, `PRAGMA quick_check(1)`); err != nil {
			return err
		}
		if verdict != "ok" {
			return fmt.Errorf("%w: %s", errDamaged, verdict)
		}
	}
	if version < len(schema) {
		if err := c.migrate(schema); err != nil {
			return err
		}
	}
	for _, text := range statements {
		if _, err := c.prepare(text); code(err) == sqlite3.SQLITE_ERROR { // a table is missing
			return fmt.Errorf("%w: %w", errDamaged, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// migrate brings the file forward, each version in its own transaction: what
// another process did meanwhile is seen inside of it.
func (c *conn) migrate(schema []migration) error {
	for {
		done := false
		err := c.within(beginWrite, func() error {
			var version int
			if err := c.one(&version, userVersion); err != nil {
				return err
			}
			if version >= len(schema) {
				done = true
				return nil
			}
			if err := schema[version](c); err != nil {
				return fmt.Errorf("migrating the index from version %d: %w", version, err)
			}
			return c.run(fmt.Sprintf(`PRAGMA user_version = %d`, version+1))
		})
		if err != nil || done {
			return err
		}
	}
}

// identify notes which files are behind the path, after the first read: from
// then on there is a log and its index.
func (c *conn) identify() error {
	var err error
	c.files, err = identities(c.path)
	return err
}

// current tells whether the files are still those that were opened.
func (c *conn) current() bool {
	now, err := identities(c.path)
	if err != nil {
		return false
	}
	for i := range now {
		if !os.SameFile(now[i], c.files[i]) {
			return false
		}
	}
	return true
}

// identities looks at a database's three files. It never opens them: closing a
// file lets go of every lock that the process has on it.
func identities(path string) (files [3]fs.FileInfo, err error) {
	for i, suffix := range []string{"", walSuffix, shmSuffix} {
		if files[i], err = os.Lstat(path + suffix); err != nil {
			return files, err
		}
	}
	return files, nil
}

// code is SQLite's primary result code, zero for an error that is not its.
func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

// remedy is what an error asks for.
type remedy int

const (
	retry   remedy = iota // it may go away: a full disk, another process
	replace               // the file is no good
	retire                // the file is somebody else's
	forget                // what was to be written is no good
)

func remedyOf(err error) remedy {
	switch {
	case errors.Is(err, errForeign), errors.Is(err, errDamaged):
		return replace
	case errors.Is(err, errNewer):
		return retire
	}
	switch code(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return replace
	case 0, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_INTERRUPT:
		return retry
	}
	return forget
}
