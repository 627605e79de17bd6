package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
)

const toLocal = "HTTP/1.1\nHost: localhost\nAuthorization: Bearer " + token + "\nContent-Type: application/json\n"

// gone waits for the other end to close, and tells how long that took.
func gone(t *testing.T, c net.Conn) (text string, after time.Duration) {
	t.Helper()
	began := time.Now()
	content, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(content), time.Since(began)
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
}

func TestSlowHeadersEndAConnection(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *timeless) {
		c := s.dial(t)
		write(t, c, "POST /mcp HTTP/1.1\nHost: localhost\nX-Slow: ")
		if _, after := gone(t, c); after != 10*time.Second {
			t.Errorf("it ended after %v", after)
		}
	})
}

func TestAnIdleConnectionEnds(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *timeless) {
		c := s.dial(t)
		if got := exchange(t, c, "GET /healthz "+toLocal+"\n"); got.status != 200 {
			t.Errorf("got %+v", got)
		}
		if _, after := gone(t, c); after != 2*time.Minute {
			t.Errorf("it ended after %v", after)
		}
	})
}

func TestASlowBodyIsNotWaitedFor(t *testing.T) {
	for name, head := range map[string]string{
		"of a call":             "POST /mcp " + toLocal,
		"of an upload":          "PUT /v1/a " + toLocal,
		"that is not asked for": "POST /mcp HTTP/1.1\nHost: localhost\nContent-Type: application/json\n",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, s *timeless) {
				c := s.dial(t)
				write(t, c, head+"Content-Length: 10\n\n{")
				text, after := gone(t, c)
				if after < 30*time.Second || after > 31*time.Second {
					t.Errorf("it ended after %v, want from %v to %v", after, 30*time.Second, 31*time.Second)
				}
				if name != "that is not asked for" && !strings.HasPrefix(text, "HTTP/1.1 408 ") {
					t.Errorf("the answer is %q", text)
				}
			})
		})
	}
}

func TestAnUploadThatMovesIsWaitedFor(t *testing.T) {
	for path, want := range map[string]int{"PUT /v1/a": 200, "POST /mcp": 408} {
		inBubble(t, Config{}, func(t *testing.T, s *timeless) {
			c := s.dial(t)
			write(t, c, path+" "+toLocal+"Content-Length: 5\n\n")
			var writing sync.WaitGroup
			writing.Go(func() {
				for range 5 {
					time.Sleep(20 * time.Second)
					if _, err := io.WriteString(c, "x"); err != nil {
						return
					}
				}
			})
			if got := receive(t, bufio.NewReader(c)); got.status != want {
				t.Errorf("%s gives %+v", path, got)
			}
			c.Close()
			writing.Wait()
		})
	}
}

// TestALongCallOutlivesTheTimesOfItsPieces: neither the body's time nor a
// write's ends a call, or the connection that it came on.
func TestALongCallOutlivesTheTimesOfItsPieces(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			select {
			case <-r.Context().Done():
				t.Error("it was cancelled")
			case <-time.After(time.Hour):
			}
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
		}
		time.Sleep(time.Hour)
	})
	inBubble(t, Config{MCP: slow, RPC: slow}, func(t *testing.T, s *timeless) {
		c := s.dial(t)
		r := bufio.NewReader(c)
		for _, path := range []string{"/mcp", "/mcp", "/api/v1/rpc"} {
			write(t, c, "POST "+path+" "+toLocal+"Content-Length: 2\n\n{}")
			if got := receive(t, r); got.status != 200 {
				t.Errorf("got.status = %d, want 200: %+v", got.status, got)
			} else if strings.Count(got.body, "data") != 3 {
				t.Errorf("got %d events, want 3: %q", strings.Count(got.body, "data"), got.body)
			}
		}
	})
}

func TestAReaderThatStallsIsLeft(t *testing.T) {
	var failed chan error
	inBubble(t, Config{MCP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				failed <- err
				return
			}
		}
	})}, func(t *testing.T, s *timeless) {
		failed = make(chan error, 1)
		c := s.dial(t)
		began := time.Now()
		write(t, c, "GET /mcp "+toLocal+"\n")
		err := <-failed
		if after := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got error %v, want %v", err, os.ErrDeadlineExceeded)
		} else if after != 30*time.Second {
			t.Errorf("after = %v, want %v", after, 30*time.Second)
		}
		c.Close()
	})
}

func TestAReaderThatIsSlowIsWaitedFor(t *testing.T) {
	const size = 4 << 20
	inBubble(t, Config{MCP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := w.Write(make([]byte, size)); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if n != size {
			t.Errorf("n = %d, want %d", n, size)
		}
	})}, func(t *testing.T, s *timeless) {
		c := s.dial(t)
		began := time.Now()
		write(t, c, "GET /mcp "+toLocal+"Connection: close\n\n")
		n := int64(0)
		for {
			some, err := io.CopyN(io.Discard, c, 1<<14)
			if n += some; err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if n < size {
			t.Errorf("n = %d, want at least %d", n, size)
		} else if time.Since(began) < 4*time.Minute {
			t.Errorf("time.Since(began) = %v, want at least %v", time.Since(began), 4*time.Minute)
		}
	})
}

func TestARequestToAFileHasItsTime(t *testing.T) {
	inBubble(t, Config{Files: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	})}, func(t *testing.T, s *timeless) {
		c := s.dial(t)
		began := time.Now()
		write(t, c, "GET /v1/a "+toLocal+"\n")
		if _, err := io.ReadAll(c); err != nil {
			t.Error(err)
		}
		if after := time.Since(began); after != 10*time.Minute {
			t.Errorf("it ended after %v", after)
		}
	})
}

func TestLargeRequestsAreRefused(t *testing.T) {
	s := start(t, Config{MaxBodyBytes: 100, MaxUploadBytes: 1000, MaxHeaderBytes: 4096})
	long := strings.Repeat("x", 200)
	for _, test := range []struct {
		name, request string
		want          int
	}{
		{"a body that says so", post("", long), 413},
		{"one that does not", "POST /mcp " + withAuth + "Content-Type: application/json\nTransfer-Encoding: chunked\n\nc8\n" + long + "\n0\n\n", 413},
		{"an upload may be larger", "PUT /v1/a " + withAuth + "Content-Length: 200\n\n" + long, 200},
		{"an upload of a size to be believed", "PUT /v1/a " + withAuth + "Content-Length: 9223372036854775807\n\n", 413},
		{"headers", "GET /mcp " + withAuth + "X-Long: " + strings.Repeat(long, 100) + "\n\n", 431},
		{"a path", "GET /" + strings.Repeat(long, 100) + " " + withAuth + "\n", 431},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := s.raw(t, test.request)
			if got.status != test.want {
				t.Errorf("got %+v", got)
			}
			if got.status == 413 && strings.Contains(got.body, `"retryable":true`) {
				t.Errorf("it says to try again: %s", got.body)
			}
		})
	}
}

func TestABodysErrorIsAFault(t *testing.T) {
	errs := make(chan error, 1)
	s := start(t, Config{MaxBodyBytes: 10, MCP: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		errs <- err
	})})
	s.raw(t, "POST /mcp "+withAuth+"Content-Type: application/json\nTransfer-Encoding: chunked\n\nf\n123456789012345\n0\n\n")
	err := <-errs
	var large *http.MaxBytesError
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Exhausted, err)
	} else if !errors.As(err, &large) {
		t.Errorf("got error %v, want one of the type *http.MaxBytesError", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	log := &lines{}
	s := start(t, Config{MaxConnections: 2, Log: log.logger()})
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := exchange(t, c, "GET /healthz HTTP/1.1\nHost: "+s.at+"\n\n"); got.status != 200 {
			t.Fatalf("got %+v", got)
		}
		held = append(held, c)
	}
	for range 3 {
		c, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("one too many got %d bytes", n)
		}
		c.Close()
	}
	if n := strings.Count(log.String(), "as many connections as there may be"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	held[0].Close()
	for { // the server learns of it soon
		c, err := net.Dial("tcp", s.at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: "+s.at+"\r\nConnection: close\r\n\r\n")
		content, _ := io.ReadAll(c)
		c.Close()
		if len(content) > 0 {
			return
		}
	}
}

// An address that holds as many connections as it may keeps no other one out.
func TestOneAddressKeepsNoOtherOneOut(t *testing.T) {
	s := start(t, Config{MaxConnections: 8, Log: (&lines{}).logger()})
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", s.at)
		if err != nil {
			t.Skipf("this machine has no %s: %v", from, err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	const hello = "GET /healthz HTTP/1.1\nHost: "
	for range 6 {
		if got := exchange(t, dial("127.0.0.2"), hello+s.at+"\n\n"); got.status != 200 {
			t.Fatalf("got %+v", got)
		}
	}
	if n, err := dial("127.0.0.2").Read(make([]byte, 1)); err == nil {
		t.Errorf("one too many got %d bytes", n)
	}
	if got := exchange(t, dial("127.0.0.3"), hello+s.at+"\n\n"); got.status != 200 {
		t.Errorf("another address got %+v", got)
	}
}

func TestTheShareOfAnAddress(t *testing.T) {
	l := &bounded{most: 100, proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for text, want := range map[string]int{"192.0.2.1": 25, "2001:db8::1": 25, "127.0.0.1": 75, "::1": 75, "10.1.2.3": 100} {
		if got := l.share(addressOf(&net.TCPAddr{IP: net.ParseIP(text)})); got != want {
			t.Errorf("%s may have %d", text, got)
		}
	}
	if one, two := network(netip.MustParseAddr("2001:db8::1")), network(netip.MustParseAddr("2001:db8::2")); one != two {
		t.Errorf("%v and %v are two", one, two)
	}
}

func TestHeadersCannotBeInjected(t *testing.T) {
	s := start(t, Config{MCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.URL.Query().Get("v"))
	})})
	for name, request := range map[string]string{
		"a decoded line end":        "GET /mcp?v=a%0d%0aX-Evil:1 " + withAuth + "\n",
		"in the path":               "GET /%0d%0aX-Evil:1 " + withAuth + "\n",
		"in the id":                 "GET /mcp " + withAuth + "X-Request-Id: a%0d%0aX-Evil:1\n\n",
		"a bare line end":           "GET /mcp " + withAuth + "X-A: b\rX-Evil: 1\n\n",
		"a length and chunks":       "POST /mcp " + withAuth + "Content-Type: application/json\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n",
		"a header's name with more": "GET /mcp " + withAuth + "X A: b\n\n",
	} {
		if got := s.raw(t, request); got.header.Get("X-Evil") != "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestAConnectionsPlaceIsFreedOnce(t *testing.T) {
	inner, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := &bounded{TCPListener: inner, most: 1}
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if n := l.open; n != 0 {
		t.Errorf("%d are open", n)
	}
}
