// Package broker stands between programs in sandboxes and other MCP servers. It knows
// which servers a session has, makes the files by which programs find their tools,
// and answers their calls: it checks the arguments, decides by the server's policy,
// calls, and gives the program what it wants of the result.
//
// A server's credentials never leave it. What a server says of itself is data: it is
// shown, searched and compared, and decides nothing but what it is asked about more
// often.
//
// Locks: none is held while a server is spoken to. sessionServers.mu is taken before
// Broker.mu, and listingCache.mu before cacheEntry.mu; all others are never held together.
package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/journal"
	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/linkfarm"
	"paddock/internal/membudget"
	"paddock/internal/secret"
	"paddock/internal/secret/redact"
	"paddock/internal/table"
	"paddock/internal/textsafe"
)

// Definition is a server that programs may call.
type Definition struct {
	upstream.Server
	Policy Policy
	// Tokens gives its bearer tokens; nil: none are sent.
	Tokens upstream.TokenSource
	// Transport sends its requests; nil: Config.Dial's.
	Transport http.RoundTripper
	// Hide is taken out of all that its program says; nil: nothing is.
	Hide *redact.Redactor
	// Identity says as whom the server is spoken to, where that is not the same for
	// everybody: connections are never shared between identities.
	Identity string
	// PerMinute is how many calls all sessions together may begin within a minute; others
	// wait. 0: nothing bounds them.
	PerMinute int
	// Raw: programs are given results as the server sends them: a value that its library
	// has wrapped stays so, and JSON in a text stays a text.
	Raw bool

	own bool // a session bound it for itself
}

// Session names a session and its owner.
type Session struct{ Owner, ID string }

// Config sets a Broker up. It is copied.
type Config struct {
	// Servers are those that every session has: the operator's.
	Servers []Definition
	// Dial is what connections are made with; its Tokens and Hide are each definition's. The
	// zero value reaches no network.
	Dial upstream.Options
	// Pool is how connections are kept; its Dial is the Broker's own.
	Pool upstream.PoolConfig
	// Bindable are the servers that sessions may bind for themselves.
	Bindable Allowlist
	// Bound is the policy for all servers that sessions bind for themselves, besides what
	// is said of each; the zero value says nothing more.
	Bound Policy
	// Chosen tells which of the Servers a session has; nil for all of them. A name may
	// be followed by a slash and one of [Narrowed]'s patterns, as often as is wanted:
	// then the session has these tools of the server. A nil function gives all of them
	// to every session. It may be called from several goroutines, often, and must not
	// call the Broker.
	Chosen func(s Session) (names *[]string, err error)
	// CallsPerRun bounds the calls of one run; zero: 1000.
	CallsPerRun int
	// PerSession bounds the servers that a session binds for itself; zero: 32.
	PerSession int
	// Dir is the folder for what is to be known again after a restart, and by other
	// processes that have the same one: servers' listings, the files made of them, what
	// tools were, what their results looked like, and sessions' own servers. It should
	// be on the disk that sessions' folders are on. Empty: all of that lasts as long as
	// the Broker, and nobody looks whether tools change.
	Dir string
	// SessionTable is where sessions' own servers are kept; nil: in Dir.
	SessionTable table.Table
	// Seal keeps the servers that sessions bind for themselves secret on the disk; nil:
	// those that have headers, or a query in their URL, last as long as the Broker.
	Seal Seal
	// Admit is asked whether a session may have a server of its own, when it is bound
	// and when it is read from the disk again; nil: it may.
	Admit func(s Session, d Definition) error
	// Instance names this paddock to servers that call it back; empty: a random name.
	Instance string
	// Journal keeps which calls were made, for runs that wait for a person; nil: a call
	// that was under way when paddock ended may be made again.
	Journal Journal
	// Seen keeps what tools were when they were first used, and a tool that is another
	// one now is refused; nil: it is kept in Dir.
	Seen catalog.Seen
	// Approve is asked about a call for which somebody has to be asked, and waits; an
	// error is the program's. Nil: such calls are denied.
	Approve func(ctx context.Context, c Asked) error
	// Memory bounds what answers of servers take while they are read; nil: nothing.
	Memory *membudget.Budget
	// Record is told of each call when it has ended; nil: nobody is. It may be called
	// from several goroutines.
	Record func(ctx context.Context, e Event)
	// Log takes what an operator should see, and no contents; nil: nothing is logged.
	Log *slog.Logger
}

// Seal encrypts what lies on the disk. The purpose has to be the same for both ways.
type Seal interface {
	Seal(purpose string, plain []byte) (sealed []byte, err error)
	Unseal(purpose string, sealed []byte) (plain []byte, err error)
}

// Journal keeps which calls a run has made and what came of them; package journal has
// one. Its methods return when what they are told is on the disk, and may be called from
// several goroutines.
type Journal interface {
	// Has tells whether calls of the run are kept.
	Has(r journal.Run) bool
	// Look gives what is known of a call; nil: it has not begun.
	Look(ctx context.Context, c journal.Call) (*journal.Outcome, error)
	// Begin writes down that a call is about to be made. What is known of it already,
	// or an error, says that it must not be.
	Begin(ctx context.Context, c journal.Call) (known *journal.Outcome, err error)
	// End writes down what came of it.
	End(ctx context.Context, c journal.Call, o journal.Outcome) error
	// Note takes down what a call is called that is about to be sent, and Answered what
	// came of it. Neither waits for the disk.
	Note(r journal.Run, number int, name string) error
	Answered(r journal.Run, number int, unsent bool) error
	// Left gives the runs of a session of which anything is kept, but for these
	// executions, and Drop lets go of them.
	Left(owner, session string, but ...string) ([]journal.Left, error)
	Drop(owner, session string, runs []journal.Left) error
	// Remove lets go of a run, and Forget of all runs of a session.
	Remove(r journal.Run) error
	Forget(owner, session string) error
}

// Broker answers calls. It is safe for concurrent use; Close ends it.
type Broker struct {
	config         Config
	pool           *upstream.Pool
	watch          *catalog.Watch // nil: nobody looks
	store          *catalog.Store // nil: the watch has another one, or none
	validator      schema.Validator
	indexes        indexes
	outlets        *transports
	listings       *listingCache
	views          views
	stubs          *linkfarm.Store
	learned        *learned
	sessionServers *sessionServers
	underway       underway
	born           time.Time

	life  context.Context // ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup // what goes on by itself, and calls that outlive their run

	mu       sync.Mutex // guards what follows
	closed   bool
	common   map[string]*serverBinding // by name; not changed after New
	provided map[Session]provided
	vetted   map[string]string // tools that are what they were, by server and name: digests
}

// serverBinding is a server that somebody has; it is not changed.
type serverBinding struct {
	Definition
	// key names the definition, and as whom the server is spoken to: what shares it
	// shares listings. sign names the policy as well.
	key, sign string
	// known is the name that its tools are remembered by: the operator's own name of it,
	// or where it is and whose it is.
	known string
	// rules say which of its tools may be called; all of them count.
	rules []rule
	// rate is the operator's for the server, which all sessions share; nil: none.
	rate *upstream.Rate
}

// rule is a policy and who made it.
type rule struct {
	key string // the operator's, in the configuration; empty: the session
	Policy
}

// hint says whose rule it is; list is "", ".ask" or the like.
func (r rule) hint(list string) string {
	if r.key == "" {
		return "the session was given only some of its tools: by tools of mcp_bind_http, or servers of create_session"
	}
	return "the operator's configuration says so: " + r.key + list
}

// keyOfTools names the policy of the operator's server of that name.
func keyOfTools(server string) string { return "servers." + server + ".tools" }

func newServerBinding(d Definition, owner *Session) *serverBinding {
	d.own = owner != nil
	one := &serverBinding{Definition: d, key: d.Key() + "/" + d.Identity, known: d.Name, rules: []rule{{keyOfTools(d.Name), d.Policy}}}
	if owner != nil {
		one.rules[0].key = ""
		one.known = fmt.Sprintf("%s of %s at %s", textsafe.Line(d.Name, maxName), owner.Owner, d.Place()[:16])
	}
	one.signed()
	return one
}

// lessons is the key for what is learned from its results, as programs get them.
func (one *serverBinding) lessons() string {
	if one.Raw {
		return one.key + "/raw"
	}
	return one.key
}

// signed has the sign name the rules as they are, and what programs get of results.
func (one *serverBinding) signed() {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%q", one.lessons(), one.rules))
	one.sign = hex.EncodeToString(sum[:])
}

// New makes a broker. All mistakes in the definitions are told at once.
func New(config Config) (*Broker, error) {
	config.Servers = slices.Clone(config.Servers)
	config.CallsPerRun, config.PerSession = cmp.Or(config.CallsPerRun, 1000), cmp.Or(config.PerSession, 32)
	config.Instance = cmp.Or(config.Instance, rand.Text())
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{
		config: config, common: map[string]*serverBinding{}, provided: map[Session]provided{}, vetted: map[string]string{},
		indexes: indexes{all: map[string]*index{}}, born: time.Now(),
	}
	errs := []error{config.Bound.Check()}
	for _, d := range config.Servers {
		if err := check(b.common, d); err != nil {
			errs = append(errs, fmt.Errorf("the server %q: %w", d.Name, err))
			continue
		}
		b.common[d.Name] = newServerBinding(d, nil)
		b.common[d.Name].rate = upstream.NewRate(d.PerMinute)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := b.openStores(); err != nil {
		return nil, err
	}
	var err error
	if b.outlets, err = openOutlets(config.Bindable); err != nil {
		return nil, err
	}
	b.life, b.end = context.WithCancel(context.Background())
	config.Pool.Dial = b.dial
	b.pool = upstream.NewPool(config.Pool)
	b.tasks.Go(func() { b.learned.run(b.life) })
	return b, nil
}

// openStores opens what outlives the process, or stands for it.
func (b *Broker) openStores() error {
	dir := func(name string) string {
		if b.config.Dir == "" {
			return ""
		}
		return filepath.Join(b.config.Dir, name)
	}
	b.listings = newListingCache(b, dir("listings"))
	b.stubs = linkfarm.NewStore(dir("trees"), os.Link)
	b.learned = newLearned(dir("learned"), b.config.Log)
	b.sessionServers = newSessionServers(b, dir("sessions"), b.config.SessionTable)
	if b.config.Seen == nil && b.config.Dir != "" {
		store, err := OpenSeen(b.config.Dir)
		if err != nil {
			return err
		}
		b.config.Seen, b.store = store, store
	}
	if b.config.Seen != nil {
		b.watch = &catalog.Watch{Seen: b.config.Seen}
	}
	return nil
}

// Close ends the connections, and calls that are under way with them.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	err := b.pool.Close()
	b.tasks.Wait()
	b.indexes.close()
	b.outlets.close()
	return errors.Join(err, b.stubs.Close())
}

// begin has f run by itself, if the Broker is not closed; Close waits for it.
func (b *Broker) begin(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(f)
	}
	return !b.closed
}

// definition is where a context has the definition that a connection is made by: the
// pool's keys name it, and nobody has to keep a table of all that sessions have bound.
type definition struct{}

// with gives a context for what the pool does with a server.
func (one *serverBinding) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, definition{}, one)
}

// dial makes a connection for the pool.
func (b *Broker) dial(ctx context.Context, _ upstream.Key) (*upstream.Conn, error) {
	one := ctx.Value(definition{}).(*serverBinding)
	o := b.config.Dial
	o.Tokens, o.Hide = one.Tokens, one.Hide
	if one.Transport != nil {
		o.Transport = one.Transport
	}
	if one.own {
		way, err := b.outlets.to(one.Name, one.URL)
		if err != nil {
			return nil, err
		}
		// What echoes the session's headers gives them to nobody who reads what it says: they
		// would be in files, logs, and what other sessions see of the same server.
		o.Transport = secret.Guard(way, slices.Collect(maps.Keys(one.Headers)), one.URL)
	}
	o.Changed = func() { b.listings.invalidate(one.key) }
	return upstream.Dial(ctx, one.Server, o)
}

// check tells what is wrong with a definition among others.
func check(others map[string]*serverBinding, d Definition) error {
	if err := checkName(d.Name); err != nil {
		return err
	}
	if err := errors.Join(d.Check(), d.Policy.Check()); err != nil {
		return err
	}
	for name := range others {
		if name != d.Name && strings.EqualFold(stub.Package(name), stub.Package(d.Name)) {
			return fault.New(fault.Conflict, "the servers %q and %q would have one folder, /servers/%s", name, d.Name, stub.Package(name)).
				WithHint("give one of them another name; capital letters and punctuation make none")
		}
	}
	return nil
}

// maxName bounds a server's name, as mcp_bind_http takes it.
const maxName = 40

func checkName(name string) error {
	ok := name != "" && len(name) <= maxName
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}
	if !ok {
		return fault.New(fault.Invalid, "a server's name has 1 to %d letters, digits, - and _", maxName)
	}
	return nil
}

// keyFor is whose connection a session's calls go over.
func (one *serverBinding) keyFor(s Session) upstream.Key {
	return upstream.Key{Session: s.key(), Server: one.key, Identity: one.Identity}
}

// common is the connection over which tools are listed for everybody.
func (one *serverBinding) common() upstream.Key {
	return upstream.Key{Server: one.key, Identity: one.Identity}
}

// key names a session, unlike every other one of any owner.
func (s Session) key() string { return s.Owner + "\x00" + s.ID }
