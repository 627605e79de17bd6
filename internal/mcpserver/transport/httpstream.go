package transport

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/session"
)

const (
	// keptFor is how long the events of a call that has ended can be had again.
	keptFor = 5 * time.Minute
	// keptBytes bounds what is kept of one stream: beyond it the oldest go, but
	// never the last one, which is the result.
	keptBytes = 1 << 20
	// keptStreams bounds the streams that one MCP session keeps.
	keptStreams = 32
	// ownerKept and allKept bound, in bytes, what is kept of ended streams.
	ownerKept = 32 << 20
	allKept   = 256 << 20
)

// archive holds the ended streams of all sessions within bounds: the oldest are
// emptied first.
type archive struct {
	mu      sync.Mutex // guards what follows; taken before a stream's own
	streams []kept     // the oldest first
	all     int
	owner   map[session.Owner]int
}

type kept struct {
	owner  session.Owner
	stream *stream
	bytes  int
}

// keep takes in a stream that has ended.
func (a *archive) keep(owner session.Owner, s *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owner == nil {
		a.owner = map[session.Owner]int{}
	}
	k := kept{owner, s, s.size()}
	a.streams = append(a.streams, k)
	a.all += k.bytes
	a.owner[owner] += k.bytes
	for i := 0; i < len(a.streams) && (a.owner[owner] > ownerKept || a.all > allKept); {
		if old := a.streams[i]; old.owner == owner || a.all > allKept {
			a.dropLocked(i)
		} else {
			i++
		}
	}
}

// sweep empties those that nobody can want any more.
func (a *archive) sweep(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.streams) > 0 && a.streams[0].stream.over(now) {
		a.dropLocked(0)
	}
}

func (a *archive) dropLocked(i int) {
	k := a.streams[i]
	a.streams = slices.Delete(a.streams, i, i+1)
	a.all -= k.bytes
	if a.owner[k.owner] -= k.bytes; a.owner[k.owner] == 0 {
		delete(a.owner, k.owner)
	}
	k.stream.empty()
}

// stream is the events of one call, for a client whose connection breaks. It
// is safe for concurrent use.
type stream struct {
	id string

	mu      sync.Mutex // guards what follows
	first   int        // the number of events[0]
	events  [][]byte
	bytes   int
	ended   bool
	endedAt time.Time
	changed chan struct{} // closed at the next change
	readers int
	giveUp  *time.Timer // nil: somebody is there, or was from the start
	give    func()      // what it calls
}

func newStream() *stream { return &stream{id: rand.Text(), changed: make(chan struct{})} }

// add keeps one event and gives its id. A nil one begins the stream.
func (s *stream) add(data []byte) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.bytes = append(s.events, data), s.bytes+len(data)
	for s.bytes > keptBytes && len(s.events) > 1 {
		s.bytes -= len(s.events[0])
		s.events, s.first = s.events[1:], s.first+1
	}
	s.changeLocked()
	return s.eventID(s.first + len(s.events) - 1)
}

func (s *stream) eventID(n int) string { return s.id + "_" + strconv.Itoa(n) }

func (s *stream) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// size is what is kept of it, in bytes.
func (s *stream) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// empty lets go of the events.
func (s *stream) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first += len(s.events)
	s.events, s.bytes = nil, 0
	s.changeLocked()
}

// end says that the last event was the result.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.endedAt = true, time.Now()
	s.changeLocked()
}

// over reports whether no client can ask for the stream any more.
func (s *stream) over(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && now.Sub(s.endedAt) > keptFor
}

// abandoned says that the call's own connection is gone: give is called when
// nobody reads the stream for resumeTime before it has ended.
func (s *stream) abandoned(give func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give = give
	s.waitLocked()
}

// waitLocked begins the time in which somebody has to come.
func (s *stream) waitLocked() {
	if s.ended || s.readers > 0 || s.give == nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(resumeTime, func() {
		s.mu.Lock()
		wanted := s.ended || s.readers > 0 || s.giveUp != timer
		s.mu.Unlock()
		if !wanted {
			s.give()
		}
	})
	s.giveUp = timer
}

// after gives what came after event n, whether that was all, and when to look again.
func (s *stream) after(n int) (events [][]byte, next int, ended bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := min(max(0, n+1-s.first), len(s.events))
	return append([][]byte(nil), s.events[from:]...), s.first + from, s.ended, s.changed
}

func (s *stream) reading(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers += by
	if s.giveUp != nil {
		s.giveUp.Stop()
		s.giveUp = nil
	}
	s.waitLocked()
}

// serve sends what came after event n, and what comes, to its end.
func (s *stream) serve(w http.ResponseWriter, r *http.Request, n int) {
	s.reading(1)
	defer s.reading(-1)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		events, first, ended, changed := s.after(n)
		for k, data := range events {
			n = first + k
			if _, err := w.Write(eventText(s.eventID(n), data)); err != nil {
				return
			}
		}
		if flush.Flush() != nil || ended {
			return
		}
		select {
		case <-changed:
		case <-alive.C:
			if _, err := w.Write([]byte(": alive\n\n")); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// parseEventID takes an event's id apart.
func parseEventID(id string) (stream string, n int, ok bool) {
	stream, number, found := strings.Cut(id, "_")
	n, err := strconv.Atoi(number)
	return stream, n, found && err == nil && n >= 0
}

// resume goes on with one of our streams, if the request is for one.
func (m *mcpSession) resume(w http.ResponseWriter, r *http.Request) bool {
	id, n, ok := parseEventID(r.Header.Get(headerLast))
	if !ok {
		return false
	}
	s := m.streamCalled(id)
	if s == nil {
		return false
	}
	if _, stream := accepts(r); !stream {
		refuseHTTP(w, http.StatusNotAcceptable, refuse(nil, codeInvalidRequest, "invalid request: text/event-stream is not accepted"))
		return true
	}
	s.serve(w, r, n)
	return true
}
