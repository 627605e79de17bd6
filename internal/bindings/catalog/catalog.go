// Package catalog finds tools of bound servers by words, and notices when a tool is
// no longer what it was when it was first used.
//
// The words are the servers' own, and a server wants to be found: how often it
// says a word counts nothing, and how much it says counts little.
package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	_ "modernc.org/sqlite" // the driver

	"paddock/internal/bindings"
	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/stub"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Catalog is an index of tools in memory. It may be used by several goroutines;
// searches and changes come one after the other.
type Catalog struct {
	mu      sync.Mutex // guards everything below, and the connection's use
	db      *sql.DB
	search  *sql.Stmt
	servers map[string]*server
	rows    map[int64]row
	last    int64 // the last row's and server's number
}

type server struct {
	number int64
	rows   map[string]int64 // by the tool's name
}

// row is one tool in the index.
type row struct {
	server  string
	tool    stub.Named
	stuffed bool // it says the same again and again
}

// The weights say what a word counts where it is found; it is indexed only at the
// first of the places. BM25 saturates: a word in the name counts about two and a
// half times as much as one in the description. The column "server" is there to
// filter.
const (
	create = `CREATE VIRTUAL TABLE tools USING fts5(name, title, description, parameters, server,
		content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')`
	weights = `INSERT INTO tools(tools, rank) VALUES('rank', 'bm25(8.0, 1.0, 0.6, 0.4, 0.0)')`
	find    = `SELECT rowid, rank FROM tools WHERE tools MATCH ? ORDER BY rank LIMIT ?`
	insert  = `INSERT INTO tools(rowid, name, title, description, parameters, server) VALUES(?, ?, ?, ?, ?, ?)`
)

// candidates are how many rows are taken from the index to be ordered.
const candidates = 100

// New makes an empty catalogue. Close ends it.
func New() (*Catalog, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("opening the catalogue's index: %w", err)
	}
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	c := &Catalog{db: db, servers: map[string]*server{}, rows: map[int64]row{}}
	for _, statement := range []string{`PRAGMA journal_mode=OFF`, `PRAGMA temp_store=MEMORY`, create, weights} {
		if _, err := db.Exec(statement); err != nil {
			return nil, errors.Join(fmt.Errorf("making the catalogue's index: %w", err), db.Close())
		}
	}
	if c.search, err = db.Prepare(find); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the catalogue's search: %w", err), db.Close())
	}
	return c, nil
}

// Close lets go of the index. It works twice.
func (c *Catalog) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.search.Close(), c.db.Close())
}

// Update makes tools all that the catalogue has of a server; none removes it. Only
// what changed is indexed again. After an error the server's tools are what they
// were.
func (c *Catalog) Update(name string, tools []bindings.Tool) error {
	named := stub.Names(tools)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.servers[name]
	if s == nil {
		c.last++
		s = &server{number: c.last}
	}
	next := &server{number: s.number, rows: map[string]int64{}}
	gone, added := []int64{}, map[int64]row{}
	for _, n := range named {
		if old, ok := s.rows[n.Tool.Name]; ok && reflect.DeepEqual(c.rows[old].tool, n) {
			next.rows[n.Tool.Name] = old
			continue
		}
		c.last++
		next.rows[n.Tool.Name], added[c.last] = c.last, row{name, n, stuffed(n.Tool)}
	}
	for tool, old := range s.rows {
		if next.rows[tool] != old {
			gone = append(gone, old)
		}
	}
	if err := c.write(s.number, gone, added); err != nil {
		return fmt.Errorf("indexing the tools of %q: %w", name, err)
	}
	for _, id := range gone {
		delete(c.rows, id)
	}
	for id, r := range added {
		c.rows[id] = r
	}
	if c.servers[name] = next; len(next.rows) == 0 {
		delete(c.servers, name)
	}
	return nil
}

func (c *Catalog) write(number int64, gone []int64, added map[int64]row) (err error) {
	tx, err := c.db.Begin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	for _, id := range gone {
		if _, err := tx.Exec(`DELETE FROM tools WHERE rowid = ?`, id); err != nil {
			return err
		}
	}
	statement, err := tx.Prepare(insert)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(added)) { // FTS5 writes out what it has when a number is smaller
		r := added[id]
		t, said := r.tool.Tool, map[string]bool{}
		if _, err := statement.Exec(id, indexed(t.Name, 64, 10, said), indexed(t.Title, 120, 12, said),
			indexed(t.Description, maxRead, 60, said), indexed(parameters(t), 600, 40, said), serverWord(number)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// parameters gives the names of a tool's parameters.
func parameters(t bindings.Tool) string {
	v, err := schema.Decode(t.Input, schema.Limits{Bytes: 256 << 10, Depth: 64, Values: 20_000})
	if err != nil {
		return ""
	}
	names := []string{}
	for _, m := range v.Get("properties").Members {
		if names = append(names, textsafe.Shorten(m.Name, 60)); len(names) == 40 {
			break
		}
	}
	return strings.Join(names, " ")
}

// Level is how much a hit tells.
type Level string

// The levels. What each has is in the comments of [Hit].
const (
	Names        Level = "name"
	Descriptions Level = "description"
	Full         Level = "full"
)

// Query says what to look for.
type Query struct {
	Text     string        // words; nothing finds every tool, in order of its name
	Servers  []string      // nil: all of them; empty: none
	Limit    int           // of hits; 0: 10; at most 100
	Level    Level         // empty: [Descriptions]
	Language stub.Language // of signatures and imports; empty: [stub.Python]
}

// Hit is one tool that was found. All texts but Signature and Import are the
// server's.
type Hit struct {
	Server string  `json:"server"`
	Tool   string  `json:"tool"`
	Score  float64 `json:"-"` // higher is better; comparable within one search
	// From level description on: one line of the description, or the whole of it at
	// level full (bounded), how the tool is called, and how a program gets it.
	Description string `json:"description,omitempty"`
	Signature   string `json:"signature,omitempty"`
	Import      string `json:"import,omitempty"`
	// At level full. The schemas are byte for byte the server's, or nil where they
	// are no JSON or larger than 64 KiB.
	Found *bindings.Tool `json:"-"`
}

// Search gives the tools that fit the words, the best first. The same catalogue
// gives the same hits in the same order. A query that is none is a fault.
func (c *Catalog) Search(ctx context.Context, q Query) ([]Hit, error) {
	switch q.Level {
	case "", Names, Descriptions, Full:
	default:
		return nil, fault.New(fault.Invalid, "there is no level of detail %s", textsafe.Quote(textsafe.Shorten(string(q.Level), 40))).
			WithHint(`it is "name", "description" or "full"`)
	}
	if q.Limit <= 0 {
		q.Limit = 10
	}
	q.Limit = min(q.Limit, 100)
	words := queryWords(q.Text)
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := c.match(ctx, q, words)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b scored) int { return a.compare(b) })
	hits := []Hit{}
	for _, f := range found[:min(len(found), q.Limit)] {
		hits = append(hits, f.hit(q))
	}
	return hits, nil
}

// scored is a row with what it is worth.
type scored struct {
	row
	score float64
}

func (s scored) compare(o scored) int {
	switch {
	case s.score > o.score:
		return -1
	case s.score < o.score:
		return 1
	}
	if n := strings.Compare(s.tool.Tool.Name, o.tool.Tool.Name); n != 0 {
		return n
	}
	return strings.Compare(s.server, o.server)
}

func (c *Catalog) match(ctx context.Context, q Query, words []string) ([]scored, error) {
	found := []scored{}
	if len(words) == 0 {
		if strings.TrimSpace(q.Text) != "" {
			return found, nil
		}
		for _, r := range c.rows {
			if q.Servers == nil || slices.Contains(q.Servers, r.server) {
				found = append(found, scored{row: r})
			}
		}
		return found, nil
	}
	worth := map[int64]float64{}
	err := c.rank(ctx, words, q.Servers, func(id int64, rank float64) { worth[id] = rank * fit(words, c.rows[id]) })
	if more := related(words); err == nil && len(more) > 0 {
		err = c.rank(ctx, more, q.Servers, func(id int64, rank float64) {
			if c.rows[id].stuffed {
				rank /= 2
			}
			worth[id] += relatedWorth * rank
		})
	}
	if err != nil {
		return nil, err
	}
	for id, score := range worth {
		found = append(found, scored{c.rows[id], score})
	}
	return found, nil
}

// rank tells of the rows in which one of the words is what they are worth, the best of them
// alone where they are many.
func (c *Catalog) rank(ctx context.Context, words, servers []string, found func(id int64, rank float64)) error {
	text, ok := c.expression(words, servers)
	if !ok {
		return nil
	}
	rows, err := c.search.QueryContext(ctx, text, candidates)
	if err != nil {
		return fmt.Errorf("searching for tools: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var rank float64
		if err := rows.Scan(&id, &rank); err != nil {
			return fmt.Errorf("searching for tools: %w", err)
		}
		found(id, -rank)
	}
	return rows.Err()
}

// hit tells of a row what the level has.
func (s scored) hit(q Query) Hit {
	t := s.tool.Tool
	h := Hit{Server: s.server, Tool: t.Name, Score: s.score}
	if q.Level == Names {
		return h
	}
	told := t.Description
	if strings.TrimSpace(told) == "" {
		told = t.Title
	}
	h.Description = textsafe.Line(told, 240)
	h.Signature, h.Import = s.tool.Signature(q.Language), s.tool.Import(s.server, q.Language)
	if q.Level == Full {
		h.Description = textsafe.Text(told, 4000)
		t.Input, t.Output = slices.Clone(whole(t.Input)), slices.Clone(whole(t.Output))
		h.Found = &t
	}
	return h
}
