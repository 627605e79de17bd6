package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/textsafe"
)

// Store is a Seen in a table, which several processes may share. A record is on the
// disk when Save returns. It may be used by several goroutines.
type Store struct {
	dir   string // empty: it is in no folder
	table table.Table
	most  int // tools of a server
}

var _ Seen = (*Store)(nil)

const (
	// maxRecords is how many tools of a server may be remembered; it may have as many.
	maxRecords = 5000
	// maxRecord bounds a file, in bytes: five parts, and what they become as JSON.
	maxRecord = 1 << 20
)

// OpenStore makes a Store of a folder, which is made where it is missing.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "the folder for what tools were cannot be made").WithCause(err)
	}
	s := StoreIn(table.NewFolder(table.FolderConfig{
		Dir: dir, Most: maxRecord,
		Write: func(path string, data []byte) error {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return blob.WriteFile(blob.OS, path, data)
		},
	}))
	s.dir = dir
	return s, nil
}

// StoreIn makes a Store of a table.
func StoreIn(t table.Table) *Store { return &Store{table: t, most: maxRecords} }

// kept is a file of the Store.
type kept struct {
	Server string          `json:"server"`
	Tool   string          `json:"tool"`
	Record json.RawMessage `json:"record"`
	// Parts and Noticed are those of a change, in a file of its own.
	Before  string       `json:"before,omitempty"`
	Parts   []Difference `json:"parts,omitempty"`
	Noticed time.Time    `json:"noticed,omitzero"`
}

// The ends of the files' names: of what a tool is known as, and of what it has become.
const (
	knownEnd  = ".json"
	changeEnd = ".change"
)

func fileName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func nameOf(server, tool, end string) string { return fileName(server) + "/" + fileName(tool) + end }

func (s *Store) path(server, tool, end string) string {
	return filepath.Join(s.dir, filepath.FromSlash(nameOf(server, tool, end)))
}

// Load gives what was saved; nil and no error where nothing was.
func (s *Store) Load(ctx context.Context, server, tool string) ([]byte, error) {
	k, err := s.read(ctx, nameOf(server, tool, knownEnd))
	if err != nil || k == nil {
		return nil, err
	}
	if k.Server != server || k.Tool != tool {
		return nil, fault.New(fault.Internal, "what the tool %s of %s was cannot be read", textsafe.Quote(tool), server)
	}
	return k.Record, nil
}

// read gives what a document has; nil: there is none.
func (s *Store) read(ctx context.Context, name string) (*kept, error) {
	d, err := s.table.Get(ctx, name, table.None)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, table.ErrTooLarge) {
		return nil, err
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(d.Data, &k)
	}
	if err != nil || k.Record == nil {
		return nil, fault.New(fault.Internal, "a record of what a tool was cannot be read").WithCause(err)
	}
	return &k, nil
}

// Save keeps what is known of a tool. A server with too many tools is a fault of kind
// Exhausted.
func (s *Store) Save(ctx context.Context, server, tool string, record []byte) error {
	return s.write(ctx, server, tool, knownEnd, kept{Record: record})
}

func (s *Store) write(ctx context.Context, server, tool, end string, k kept) error {
	k.Server, k.Tool = server, tool
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	name := nameOf(server, tool, end)
	if _, err := s.table.Get(ctx, name, table.None); err != nil {
		if there, err := s.table.Names(ctx, fileName(server)); err == nil && len(there) >= 2*s.most {
			return fault.New(fault.Exhausted, "%d tools of %s were used, and no more can be remembered", s.most, server).
				WithHint("an operator can accept that it changed, or remove the server")
		}
	}
	_, err = s.table.Put(ctx, name, text, table.Any)
	return err
}

// ChangeOf gives how a server's tool is not what it was at its first use, and keeps the change
// so that it can be accepted. It gives nil for a tool that is unchanged, and for one that was
// never used: that ChangeOf looks at a tool is not a use.
func (s *Store) ChangeOf(ctx context.Context, server string, t bindings.Tool) (*Change, error) {
	before, err := s.Load(ctx, server, t.Name)
	if err != nil || before == nil {
		return nil, err
	}
	change, err := (&Watch{Seen: s}).Use(ctx, server, t)
	if err == nil && change != nil {
		err = s.Notice(ctx, change)
	}
	return change, err
}

// Noticed is a change that nobody has accepted.
type Noticed struct {
	Change
	At time.Time // when it was noticed first, as it is
}

// Notice keeps a change, for Changes to give and Accept to accept.
func (s *Store) Notice(ctx context.Context, c *Change) error {
	if was, err := s.read(ctx, nameOf(c.Server, c.Tool, changeEnd)); err == nil && was != nil && fingerprintOf(was.Record) == c.Now {
		return nil
	}
	record, err := json.Marshal(c.now)
	if err != nil {
		return err
	}
	k := kept{Record: record, Before: c.Before, Parts: c.Parts, Noticed: time.Now().UTC()}
	if err := s.write(ctx, c.Server, c.Tool, changeEnd, k); err != nil {
		return fmt.Errorf("keeping that the tool %s of %s changed: %w", textsafe.Quote(c.Tool), c.Server, err)
	}
	return nil
}

func fingerprintOf(record []byte) string {
	var r saved
	if json.Unmarshal(record, &r) != nil {
		return ""
	}
	return r.Fingerprint
}

// Changes gives the changes that nobody has accepted, in order of server and tool.
func (s *Store) Changes(ctx context.Context) ([]Noticed, error) {
	names, err := s.table.Names(ctx, "")
	if err != nil {
		return nil, err
	}
	var all []Noticed
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(name, changeEnd) {
			continue
		}
		k, err := s.read(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading the changes of tools: %w", err)
		}
		if k == nil {
			continue // it was accepted just now
		}
		all = append(all, Noticed{Change{Server: k.Server, Tool: k.Tool, Before: k.Before, Now: fingerprintOf(k.Record), Parts: k.Parts}, k.Noticed})
	}
	slices.SortFunc(all, func(a, b Noticed) int {
		return strings.Compare(a.Server+"\x00"+a.Tool, b.Server+"\x00"+b.Tool)
	})
	return all, nil
}

// Accept has a tool be what it has become. The fingerprint is the one of the change
// that somebody has looked at, or empty: whatever was noticed last. Where the tool has
// changed again it is a fault of kind Conflict, and NotFound where it has not changed.
// Parts of it that vary may become anything from then on, such as a
// description that lists what is in a folder. They are those of a [Difference].
func (s *Store) Accept(ctx context.Context, server, tool, fingerprint string, vary ...string) error {
	name := nameOf(server, tool, changeEnd)
	k, err := s.read(ctx, name)
	switch {
	case err != nil:
		return err
	case k == nil || k.Server != server || k.Tool != tool:
		return fault.New(fault.NotFound, "no change of a tool %s of %s waits to be accepted", textsafe.Quote(textsafe.Shorten(tool, 100)), textsafe.Quote(textsafe.Shorten(server, 100)))
	case fingerprint != "" && fingerprintOf(k.Record) != fingerprint:
		return fault.New(fault.Conflict, "the tool %s of %s is not what was looked at", textsafe.Quote(textsafe.Shorten(tool, 100)), server).
			WithHint("look at what it is now, and accept that")
	}
	record, err := s.varying(ctx, server, tool, k.Record, vary)
	if err == nil {
		err = s.write(ctx, server, tool, knownEnd, kept{Record: record})
	}
	if err != nil {
		return fmt.Errorf("accepting a change: %w", err)
	}
	return s.table.Delete(ctx, name, table.Any)
}

// varying gives a record of which these parts may become anything, and those that
// could before.
func (s *Store) varying(ctx context.Context, server, tool string, record json.RawMessage, vary []string) (json.RawMessage, error) {
	var now, before saved
	if err := json.Unmarshal(record, &now); err != nil {
		return nil, err
	}
	if known, err := s.read(ctx, nameOf(server, tool, knownEnd)); err == nil && known != nil {
		_ = json.Unmarshal(known.Record, &before) // what cannot be read lets nothing vary
	}
	now.Varies = append(before.Varies, vary...)
	slices.Sort(now.Varies)
	now.Varies = slices.Compact(now.Varies)
	return json.Marshal(now)
}
