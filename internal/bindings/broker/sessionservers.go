package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/textsafe"
)

const (
	// maxOwn bounds the file of a session's servers, in bytes.
	maxOwn = 4 << 20
	// ownTimeout is how long one process waits for another that writes such a file.
	ownTimeout = 5 * time.Second
)

// sessionServers has the servers that sessions bound for themselves. Those that can be kept are in
// a document for each session, which other processes read as well: who asks finds what is
// there now.
type sessionServers struct {
	broker *Broker
	dir    string      // of the files, where the documents are such
	table  table.Table // nil: nothing is kept

	mu      sync.Mutex                            // guards what follows
	read    map[Session]readDocument              // as the documents were when they were read
	unsaved map[Session]map[string]*serverBinding // what is in none
}

type readDocument struct {
	revision table.Revision
	servers  map[string]*serverBinding
}

// newSessionServers has them in a folder, or in a table where it is not nil.
func newSessionServers(b *Broker, dir string, in table.Table) *sessionServers {
	o := &sessionServers{broker: b, dir: dir, table: in, read: map[Session]readDocument{}, unsaved: map[Session]map[string]*serverBinding{}}
	if o.table != nil || dir == "" {
		return o
	}
	o.table = table.NewFolder(table.FolderConfig{
		Dir: dir, Stamps: true, Most: maxOwn, Write: replace,
		Lock: func(name string) string { return name + ".lock" }, Timeout: ownTimeout, Brief: true,
		Before: func(string) error {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("making the folder for sessions' servers: %w", err)
			}
			return nil
		},
		Locked: func(err error) error {
			return fault.New(fault.Unavailable, "another process changes the session's servers").WithHint("try again in a moment").WithCause(err)
		},
	})
	return o
}

// storedServer is a server in the file; either Plain or Sealed is set.
type storedServer struct {
	Plain  *storedDefinition `json:"plain,omitempty"`
	Sealed []byte            `json:"sealed,omitempty"`
}

type storedDefinition struct {
	Server   upstream.Server `json:"server"`
	Policy   Policy          `json:"policy"`
	Identity string          `json:"identity,omitempty"`
}

type storedFile struct {
	Version int            `json:"version"`
	Owner   string         `json:"owner"`
	Session string         `json:"session"`
	Servers []storedServer `json:"servers"`
}

const storedVersion = 1

// private tells whether a definition holds what nobody else should read.
func private(d Definition) bool {
	u, err := url.Parse(d.URL)
	return len(d.Headers) > 0 || len(d.Env) > 0 || len(d.Args) > 0 || err != nil || u.RawQuery != ""
}

// canStore tells whether a definition can be in a file.
func (o *sessionServers) canStore(d Definition) bool {
	return o.table != nil && d.Tokens == nil && (o.broker.config.Seal != nil || !private(d))
}

func documentOf(s Session) string { return nameOf(s.Owner, s.ID) + ".json" }

func (o *sessionServers) path(s Session) string { return filepath.Join(o.dir, documentOf(s)) }

func purpose(s Session) string { return "servers of the session " + nameOf(s.Owner, s.ID) }

// servers gives a session's own servers. They are not to be changed.
func (o *sessionServers) servers(s Session) (map[string]*serverBinding, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept, _, err := o.keptLocked(context.Background(), s)
	return o.withLocked(s, kept), err
}

// withLocked gives those in the file and those that are in none.
func (o *sessionServers) withLocked(s Session, kept map[string]*serverBinding) map[string]*serverBinding {
	if len(o.unsaved[s]) == 0 {
		return kept
	}
	all := maps.Clone(kept)
	if all == nil {
		all = map[string]*serverBinding{}
	}
	maps.Copy(all, o.unsaved[s])
	return all
}

// keptLocked gives those in the session's document, which is read where it is not the one
// that was read last, and its revision: table.None where there is none, and where it cannot
// be read table.Any.
func (o *sessionServers) keptLocked(ctx context.Context, s Session) (map[string]*serverBinding, table.Revision, error) {
	if o.table == nil {
		return nil, table.None, nil
	}
	was := o.read[s]
	d, err := o.table.Get(ctx, documentOf(s), was.revision)
	if errors.Is(err, fs.ErrNotExist) {
		delete(o.read, s)
		return nil, table.None, nil
	}
	if err != nil {
		return nil, table.Any, fmt.Errorf("reading the session's own servers: %w", err)
	}
	if d.Revision == was.revision {
		return was.servers, was.revision, nil
	}
	servers, err := o.decode(s, d.Data)
	if err != nil {
		return nil, d.Revision, err
	}
	o.read[s] = readDocument{d.Revision, servers}
	return servers, d.Revision, nil
}

// decode reads a document. A server that the session may not have any more, or that cannot
// be unsealed any more, is left out.
func (o *sessionServers) decode(s Session, text []byte) (map[string]*serverBinding, error) {
	var t storedFile
	if err := json.Unmarshal(text, &t); err != nil || t.Version != storedVersion || t.Owner != s.Owner || t.Session != s.ID {
		return nil, fault.New(fault.Internal, "the servers that the session bound cannot be read").WithHint("bind them again").WithCause(err)
	}
	all := map[string]*serverBinding{}
	for _, one := range t.Servers {
		d, err := o.open(s, one)
		if err == nil {
			err = o.broker.admit(s, d)
		}
		if err == nil {
			err = check(all, d)
		}
		if err != nil {
			o.broker.config.Log.Warn("a session's server was not released", "session", s.ID, "server", textsafe.Line(d.Name, maxName), "cause", fault.CauseOf(err))
			continue
		}
		all[d.Name] = o.broker.newOwn(d, &s)
	}
	return all, nil
}

func (o *sessionServers) open(s Session, one storedServer) (Definition, error) {
	d := one.Plain
	if d == nil {
		if o.broker.config.Seal == nil {
			return Definition{}, fault.New(fault.Unavailable, "what is sealed cannot be read without its key")
		}
		text, err := o.broker.config.Seal.Unseal(purpose(s), one.Sealed)
		if err != nil {
			return Definition{}, fmt.Errorf("unsealing a server: %w", err)
		}
		d = &storedDefinition{}
		if err := json.Unmarshal(text, d); err != nil {
			return Definition{}, fault.New(fault.Internal, "what was sealed is not a server")
		}
	}
	return Definition{Server: d.Server, Policy: d.Policy, Identity: d.Identity}, nil
}

// change writes a session's document again, one process after the other. f is called again
// where another changed it meanwhile.
func (o *sessionServers) change(s Session, f func(kept map[string]*serverBinding) error) error {
	name := documentOf(s)
	return table.Alone(context.Background(), o.table, name, func(ctx context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		kept, revision, err := o.keptLocked(ctx, s)
		if fault.KindOf(err) == fault.Unavailable {
			return err // what it has may still be good
		}
		if err != nil {
			o.broker.config.Log.Warn("the servers of a session cannot be read and were dropped", "session", s.ID, "cause", fault.CauseOf(err))
		}
		servers := maps.Clone(kept)
		if servers == nil {
			servers = map[string]*serverBinding{}
		}
		if err := f(servers); err != nil {
			return err
		}
		delete(o.read, s)
		if len(servers) == 0 {
			if revision == table.None {
				return nil
			}
			if err := o.table.Delete(ctx, name, revision); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("removing the session's servers: %w", err)
			}
			return nil
		}
		text, err := o.encode(s, servers)
		if err != nil {
			return err
		}
		if _, err := o.table.Put(ctx, name, text, revision); err != nil {
			return fmt.Errorf("keeping the session's servers: %w", err)
		}
		return nil
	})
}

func (o *sessionServers) encode(s Session, servers map[string]*serverBinding) ([]byte, error) {
	t := storedFile{Version: storedVersion, Owner: s.Owner, Session: s.ID}
	for _, one := range servers {
		d := storedDefinition{one.Server, one.Policy, one.Identity}
		if o.broker.config.Seal == nil {
			t.Servers = append(t.Servers, storedServer{Plain: &d})
			continue
		}
		text, err := json.Marshal(d)
		if err != nil {
			return nil, err
		}
		sealed, err := o.broker.config.Seal.Seal(purpose(s), text)
		if err != nil {
			return nil, fmt.Errorf("sealing a server: %w", err)
		}
		t.Servers = append(t.Servers, storedServer{Sealed: sealed})
	}
	text, err := json.Marshal(t)
	if err == nil && len(text) > maxOwn {
		err = fault.New(fault.Exhausted, "the definitions of the session's servers are too large").WithHint("mcp_unbind lets go of one")
	}
	return text, err
}

// put gives a session a server, and tells whether it is in the file.
func (o *sessionServers) put(s Session, one *serverBinding) (kept bool, err error) {
	if !o.canStore(one.Definition) {
		if _, err := o.remove(s, one.Name); err != nil { // of which there may be one in the file
			return false, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		kept, _, err := o.keptLocked(context.Background(), s)
		if err == nil {
			err = o.broker.fits(o.withLocked(s, kept), one.Definition)
		}
		if err != nil {
			return false, err
		}
		if o.unsaved[s] == nil {
			o.unsaved[s] = map[string]*serverBinding{}
		}
		o.unsaved[s][one.Name] = one
		return false, nil
	}
	return true, o.change(s, func(servers map[string]*serverBinding) error {
		if err := o.broker.fits(o.withLocked(s, servers), one.Definition); err != nil {
			return err
		}
		servers[one.Name] = one
		delete(o.unsaved[s], one.Name)
		return nil
	})
}

// remove takes a server away, and gives it; nil: there was none.
func (o *sessionServers) remove(s Session, name string) (*serverBinding, error) {
	mine, err := o.servers(s)
	if err != nil || mine[name] == nil {
		return nil, err
	}
	one := mine[name]
	o.mu.Lock()
	delete(o.unsaved[s], name)
	o.mu.Unlock()
	if o.table == nil {
		return one, nil
	}
	return one, o.change(s, func(servers map[string]*serverBinding) error {
		delete(servers, name)
		return nil
	})
}

func (o *sessionServers) forget(s Session) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.unsaved, s)
	delete(o.read, s)
	if o.table == nil {
		return nil
	}
	if err := o.table.Delete(context.Background(), documentOf(s), table.Any); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (o *sessionServers) copyTo(from, to Session) error {
	o.mu.Lock()
	kept, _, err := o.keptLocked(context.Background(), from)
	fleeting := map[string]*serverBinding{}
	for name, one := range o.unsaved[from] {
		fleeting[name] = o.broker.newOwn(one.Definition, &to)
	}
	if err == nil {
		delete(o.unsaved, to)
		if len(fleeting) > 0 {
			o.unsaved[to] = fleeting
		}
	}
	o.mu.Unlock()
	if err != nil || o.table == nil {
		return err
	}
	return o.change(to, func(servers map[string]*serverBinding) error {
		clear(servers)
		for name, one := range kept {
			servers[name] = o.broker.newOwn(one.Definition, &to)
		}
		return nil
	})
}
