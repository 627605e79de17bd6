package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// works is a handler of calls that end when they are told to, or with their
// context, and of streams that end with their context alone.
type works struct {
	begun chan string
	done  chan struct{}
	ended chan error // why each ended; nil: by done
}

// inside makes its channels those of a bubble.
func (k *works) inside() {
	k.begun, k.done, k.ended = make(chan string, 8), make(chan struct{}), make(chan error, 8)
}

func (k *works) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "begun ")
	w.(http.Flusher).Flush()
	done := k.done
	if r.Method == http.MethodGet {
		done = nil
	}
	k.begun <- r.Method
	select {
	case <-done:
		io.WriteString(w, "done")
		k.ended <- nil
	case <-r.Context().Done():
		io.WriteString(w, "cancelled")
		k.ended <- context.Cause(r.Context())
	}
}

func TestRunningCallsEndBeforeTheServerDoesAndStreamsAtOnce(t *testing.T) {
	k, drained := &works{}, 0
	inBubble(t, Config{MCP: k, OnDrain: func() { drained++ }}, func(t *testing.T, s *timeless) {
		k.inside()
		stream, call := s.dial(t), s.dial(t)
		write(t, stream, "GET /mcp "+toLocal+"\n")
		write(t, call, "POST /mcp "+toLocal+"Content-Length: 2\n\n{}")
		answers := make(chan reply, 2)
		go func() { answers <- receive(t, bufio.NewReader(stream)) }()
		go func() { answers <- receive(t, bufio.NewReader(call)) }()
		<-k.begun
		<-k.begun
		began := time.Now()
		s.cancel()
		if got := <-answers; got.body != "begun cancelled" {
			t.Errorf(`got.body = %q, want "begun cancelled"`, got.body)
		} else if time.Since(began) > 0 {
			t.Errorf("time.Since(began) = %v, want at most 0", time.Since(began))
		}
		if err := <-k.ended; !errors.Is(err, errEnding) {
			t.Errorf("the stream ended because of %v", err)
		}
		select {
		case s.made <- nil:
			t.Error("a new connection was taken")
		case <-s.closed:
		}
		time.Sleep(29 * time.Second)
		close(k.done)
		if got := <-answers; got.body != "begun done" {
			t.Errorf("the call is %q", got.body)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if drained != 1 {
			t.Errorf("it was told %d times", drained)
		}
	})
}

// A client may have opened connections ahead of time.
func TestAConnectionOnWhichNothingCameHoldsNothingUp(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *timeless) {
		s.dial(t)
		synctest.Wait()
		began := time.Now()
		s.cancel()
		if err := <-s.ended; err != nil {
			t.Errorf("the server: got error %v, want none", err)
		} else if time.Since(began) > time.Second {
			t.Errorf("the server: time.Since(began) = %v, want at most %v", time.Since(began), time.Second)
		}
	})
}

// Whoever sends half a request has nothing that could be cut off.
func TestHalfARequestHoldsNothingUp(t *testing.T) {
	for name, text := range map[string]string{
		"half of the headers":           "POST /mcp HTTP/1.1\nHost: local",
		"half of a call":                "POST /mcp " + toLocal + "Content-Length: 10\n\n{",
		"half of an upload":             "PUT /v1/a " + toLocal + "Content-Length: 10\n\n{",
		"half of what is not asked for": "POST /mcp HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 10\n\n{",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{BodyTimeout: time.Hour, HeaderTimeout: time.Hour}, func(t *testing.T, s *timeless) {
				c := s.dial(t)
				write(t, c, text)
				go io.Copy(io.Discard, c)
				synctest.Wait()
				began := time.Now()
				s.cancel()
				if err := <-s.ended; err != nil {
					t.Errorf("the server: got error %v, want none", err)
				} else if time.Since(began) > 10*time.Second {
					t.Errorf("the server: time.Since(began) = %v, want at most %v", time.Since(began), 10*time.Second)
				}
			})
		})
	}
}

func TestAnUploadThatMovesIsFinishedWhenTheServerEnds(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *timeless) {
		c := s.dial(t)
		write(t, c, "PUT /v1/a "+toLocal+"Content-Length: 20\n\n")
		synctest.Wait()
		s.cancel()
		for range 20 {
			time.Sleep(time.Second)
			write(t, c, "x")
		}
		if got := receive(t, bufio.NewReader(c)); got.status != 200 {
			t.Errorf("got.status = %d, want 200: %+v", got.status, got)
		} else if got.body != "ann: xxxxxxxxxxxxxxxxxxxx" {
			t.Errorf(`got.body = %q, want "ann: xxxxxxxxxxxxxxxxxxxx": %+v`, got.body, got)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

func TestACallThatDoesNotEndIsCancelledWhenTheGraceIsOver(t *testing.T) {
	k := &works{}
	inBubble(t, Config{MCP: k, Grace: time.Minute}, func(t *testing.T, s *timeless) {
		k.inside()
		k.done = nil
		call := s.dial(t)
		write(t, call, "POST /mcp "+toLocal+"Content-Length: 2\n\n{}")
		answer := make(chan reply, 1)
		go func() { answer <- receive(t, bufio.NewReader(call)) }()
		<-k.begun
		began := time.Now()
		s.cancel()
		if got := <-answer; got.body != "begun cancelled" {
			t.Errorf(`got.body = %q, want "begun cancelled"`, got.body)
		} else if time.Since(began) != time.Minute {
			t.Errorf("time.Since(began) = %v, want %v", time.Since(began), time.Minute)
		}
		if err := <-k.ended; !errors.Is(err, errEnding) {
			t.Errorf("the call ended because of %v", err)
		}
		if err := <-s.ended; fault.KindOf(err) != fault.Unavailable {
			t.Errorf("the server: got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Unavailable, err)
		} else if !strings.HasPrefix(err.Error(), "1 requests were cut off after 1m0s") {
			t.Errorf(`the server: got error %q, want it to begin with "1 requests were cut off after 1m0s"`,
				err.Error())
		}
	})
}

func TestAHandlerThatHearsNothingIsLeftBehind(t *testing.T) {
	var begun, deaf chan struct{}
	inBubble(t, Config{MCP: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-deaf
	})}, func(t *testing.T, s *timeless) {
		begun, deaf = make(chan struct{}), make(chan struct{})
		c := s.dial(t)
		write(t, c, "GET /mcp "+toLocal+"\n")
		<-begun
		began := time.Now()
		s.cancel()
		err := <-s.ended
		if after := time.Since(began); err == nil {
			t.Error("got no error, want one")
		} else if after != 30*time.Second+2*afterwards {
			t.Errorf("after = %v, want %v", after, 30*time.Second+2*afterwards)
		}
		close(deaf)
	})
}

func TestReadinessEndsFirst(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *timeless) {
		s.own.beginDrain()
		c := s.dial(t)
		if got := exchange(t, c, "GET /readyz "+toLocal+"\n"); got.status != 503 {
			t.Errorf("got.status = %d, want 503: %+v", got.status, got)
		} else if !strings.Contains(got.body, "the server is ending") {
			t.Errorf(`got.body = %q, want "the server is ending" in it`, got.body)
		}
		if got := exchange(t, c, "GET /healthz "+toLocal+"\n"); got.status != 200 {
			t.Errorf("got %+v", got)
		}
	})
}

type brief struct{ until time.Time }

func (b brief) Verify(context.Context, string) (*auth.Principal, error) {
	return &auth.Principal{ID: "token:1", Name: "ann", Expires: b.until}, nil
}

// headerListens is a Gate to which requests listen that have a header.
type headerListens struct{ openGate }

func (headerListens) Listens(r *http.Request) bool { return r.Header.Get("X-Listen") != "" }

func TestAStreamEndsWithItsToken(t *testing.T) {
	k := &works{}
	for method, gate := range map[string]Gate{"GET": nil, "POST": headerListens{}} {
		synctest.Test(t, func(t *testing.T) {
			k.inside()
			s := create(t, Config{MCP: k, Verifier: brief{time.Now().Add(time.Hour)}, Gate: gate})
			s.listensAt(80)
			r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/mcp", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "localhost"
			r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "X-Listen": {"1"}}
			time.AfterFunc(2*time.Hour, func() { close(k.done) })
			began := time.Now()
			s.ServeHTTP(discard{http.Header{}}, r)
			if err := <-k.ended; !errors.Is(err, errExpired) {
				t.Errorf("the %s ended because of %v, want %v", method, err, errExpired)
			} else if time.Since(began) != time.Hour {
				t.Errorf("the %s ended after %v, want %v", method, time.Since(began), time.Hour)
			}
		})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

func TestTheURLThatIsPrinted(t *testing.T) {
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{}, "http://127.0.0.1:7/mcp"},
		{Config{Host: "::1", Path: "/a/b"}, "http://[::1]:7/a/b"},
		{Config{Host: "0.0.0.0", AllowPlain: true}, "http://localhost:7/mcp"},
		{Config{PublicURL: "https://a.test/"}, "https://a.test/mcp"},
	} {
		if got := create(t, test.config).url(7); got != test.want {
			t.Errorf("it is %s, want %s", got, test.want)
		}
	}
}
