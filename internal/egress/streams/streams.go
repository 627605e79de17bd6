// Package streams is the host's side of the network of guests that have no sockets of
// their own: it answers the messages "net.…" (guest/README.md). A stream is a connection
// to the session's [proxy.Proxy], on which the guest speaks plain HTTP/1.1 to a host; what
// of it is allowed, and whether TLS is spoken beyond, is the proxy's to say and to do.
//
// Streams belong to a [Table], and so to a process: they are in no checkpoint. A guest
// that was brought back to an earlier state, or goes on in another process, asks for
// streams that are not there, or that have gone on without it, and is told that they were
// reset. Each read and write says at which byte of the stream it is, so that a request
// whose answer got lost can be made again.
//
// Locks, in their order: Table.mu, half.mu.
package streams

import (
	"bytes"
	"cmp"
	"context"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"paddock/internal/egress/proxy"
)

// Config says what a table is.
type Config struct {
	// Proxy is where streams lead; nil: there is no network, which is what every message
	// is answered with.
	Proxy *proxy.Proxy
	// Allow says where a person allows hosts; "": "in the configuration's network.allow, or
	// PADDOCK_NET_ALLOW".
	Allow string
	// Open is how many streams there may be at once; zero: 48, which leaves room among a run's calls where each has one that waits.
	Open int
	// Buffer is how many bytes a stream keeps in each direction; zero: 512 KiB. Who
	// writes more waits.
	Buffer int
	// Idle is after how much time a stream is closed of which nobody asks anything;
	// zero: 10 min.
	Idle time.Duration
}

// Table is the streams of one session; [New] makes it. It is for any number of
// goroutines.
type Table struct {
	config Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // what serves a stream

	mu      sync.Mutex
	closed  bool
	last    int // stream's number
	streams map[int]*stream
	opening int                   // streams that are about to be in it
	names   map[netip.Addr]string // for which names addresses were made up
}

// New makes a table without streams.
func New(c Config) *Table {
	c.Open = cmp.Or(c.Open, 48)
	c.Buffer = cmp.Or(c.Buffer, 512<<10)
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	c.Allow = cmp.Or(c.Allow, "in the configuration's network.allow, or PADDOCK_NET_ALLOW")
	t := &Table{config: c, streams: map[int]*stream{}, names: map[netip.Addr]string{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Asked tells whether a message is one for a table.
func Asked(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"op":"net.`)) }

// Close closes all streams, and waits for their end. It works twice.
func (t *Table) Close() error {
	t.mu.Lock()
	t.closed = true
	var all []*stream
	for _, s := range t.streams {
		all = append(all, s)
	}
	clear(t.streams)
	t.mu.Unlock()
	t.cancel()
	for _, s := range all {
		s.close()
	}
	t.work.Wait()
	return nil
}

// find gives an open stream; nil: there is none of that number.
func (t *Table) find(number int) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams[number]
}

// reserve makes room for a stream, which add or unreserve takes.
func (t *Table) reserve() *failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return &failure{Kind: kindReset, Message: "the session's network has been closed"}
	case len(t.streams)+t.opening >= t.config.Open:
		return &failure{Kind: kindExhausted, Message: "as many connections to the network are open as there may be at once: close some first"}
	}
	t.opening++
	return nil
}

func (t *Table) unreserve() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opening--
}

// add puts a stream into the table in the place that was reserved; false: the table is
// closed, and so is the stream.
func (t *Table) add(s *stream) bool {
	t.mu.Lock()
	t.opening--
	closed := t.closed
	if !closed {
		t.last++
		s.number = t.last
		t.streams[s.number] = s
		s.idle = time.AfterFunc(t.config.Idle, func() { t.remove(s.number) })
	}
	t.mu.Unlock()
	if closed {
		s.close()
	}
	return !closed
}

// remove closes a stream.
func (t *Table) remove(number int) {
	t.mu.Lock()
	s := t.streams[number]
	delete(t.streams, number)
	t.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// goOn runs f unless the table is closed, which waits for its end.
func (t *Table) goOn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Go(f)
	return true
}

// Addresses are made up of a network that is meant for measurements: nothing is there.
var (
	network = netip.MustParsePrefix("198.18.0.0/15")
	first   = network.Addr().As4()
)

// addressOf makes an address up that stands for a name: the same in every process,
// unless two names of the session would have it.
func (t *Table) addressOf(name string) netip.Addr {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never an error
	t.mu.Lock()
	defer t.mu.Unlock()
	const there = 1 << 17
	for k := range uint32(there) {
		n := (h.Sum32() + k) % there
		if n == 0 {
			continue
		}
		addr := netip.AddrFrom4([4]byte{first[0], first[1] + byte(n>>16), byte(n >> 8), byte(n)})
		if owner, taken := t.names[addr]; !taken || owner == name {
			if len(t.names) < maxNames {
				t.names[addr] = name
			}
			return addr
		}
	}
	return network.Addr() // never: there are fewer names
}

// maxNames is how many names are remembered.
const maxNames = 4096
