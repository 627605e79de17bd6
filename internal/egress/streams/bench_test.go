package streams

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"paddock/internal/egress/proxy"
)

// hostOf serves what BenchmarkDownload and BenchmarkRequest ask for, and gives its port.
func hostOf(b *testing.B) string {
	b.Helper()
	much := bytes.Repeat([]byte("x"), 64<<10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/much" {
			fmt.Fprint(w, "ok")
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(4<<20))
		for range 64 {
			if _, err := w.Write(much); err != nil {
				return
			}
		}
	}))
	b.Cleanup(s.Close)
	_, port, _ := bytes.Cut([]byte(s.Listener.Addr().String()), []byte(":"))
	return string(port)
}

// asks is a guest that asks for a path on a stream that is kept.
type asks struct {
	table    *Table
	port     string
	n        int
	sent, at int
}

func newAsks(b *testing.B) *asks {
	port := hostOf(b)
	a := &asks{table: tableOf(b, Config{}, proxy.Config{Budgets: proxy.Budgets{Requests: -1, Sent: -1, Received: -1}}, "127.0.0.1:"+port+"!private"), port: port}
	a.n = a.table.ask(b, fmt.Sprintf(`{"op":"net.open","host":"127.0.0.1","port":%s}`, port)).Value.Stream
	if a.n == 0 {
		b.Fatal("there is no stream")
	}
	return a
}

// get gives how many bytes came, and in how many messages.
func (a *asks) get(b *testing.B, path string, least int) (size, reads int) {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n", path, a.port)
	a.table.Answer(b.Context(), fmt.Appendf(nil, "{\"op\":\"net.write\",\"stream\":%d,\"at\":%d}\n%s", a.n, a.sent, text))
	a.sent += len(text)
	for size < least {
		_, behind, _ := bytes.Cut(a.table.Answer(b.Context(), fmt.Appendf(nil, `{"op":"net.read","stream":%d,"at":%d,"max":262144}`, a.n, a.at)), []byte("\n"))
		if len(behind) == 0 {
			b.Fatal("the stream has ended")
		}
		a.at, size, reads = a.at+len(behind), size+len(behind), reads+1
	}
	return size, reads
}

func BenchmarkDownload(b *testing.B) {
	a := newAsks(b)
	b.SetBytes(4 << 20)
	reads := 0
	for b.Loop() {
		_, n := a.get(b, "/much", 4<<20)
		reads += n
	}
	b.ReportMetric(float64(reads)/float64(b.N), "reads")
}

func BenchmarkRequest(b *testing.B) {
	a := newAsks(b)
	for b.Loop() {
		a.get(b, "/", 1)
	}
}
