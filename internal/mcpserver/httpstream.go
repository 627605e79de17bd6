package mcpserver

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// keptFor is how long the events of a call that has ended can be had again.
	keptFor = 5 * time.Minute
	// keptBytes bounds what is kept of one stream: beyond it the oldest go, but
	// never the last one, which is the result.
	keptBytes = 1 << 20
	// keptStreams bounds the streams that one MCP session keeps.
	keptStreams = 32
)

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
	giveUp  *time.Timer
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

// end says that the last event was the result.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.endedAt = true, time.Now()
	s.changeLocked()
}

// over tells whether nobody can want the stream any more.
func (s *stream) over(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && now.Sub(s.endedAt) > keptFor
}

// abandoned has giveUp called when nobody has resumed the stream after d.
func (s *stream) abandoned(d time.Duration, giveUp func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.readers > 0 {
		return
	}
	s.giveUp = time.AfterFunc(d, func() {
		s.mu.Lock()
		wanted := s.ended || s.readers > 0
		s.mu.Unlock()
		if !wanted {
			giveUp()
		}
	})
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
