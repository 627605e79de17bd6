package proxy

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// ratio measures the same requests with and without the proxy, in turns, and reports how
// many times as long they take with it.
func ratio(b *testing.B, size int64, secure bool) {
	body := make([]byte, 64<<10)
	s := serves(b, secure, func(w http.ResponseWriter, _ *http.Request) {
		for left := size; left > 0; left -= int64(len(body)) {
			if _, err := w.Write(body[:min(left, int64(len(body)))]); err != nil {
				return
			}
		}
	})
	target := "http://example.com:" + s.port()
	if secure {
		target = "https://example.com:" + s.port()
	}
	d, _ := opened(b, Config{Budgets: Budgets{Requests: -1, Received: -1, Sent: -1}}, "example.com:*!private")
	through := program(b, d)
	direct := clientOf(b, s.Client().Transport.(*http.Transport).Clone())
	directly := "http://" + s.Listener.Addr().String()
	if secure {
		directly = "https://" + s.Listener.Addr().String()
	}
	took := map[*http.Client]time.Duration{}
	get := func(c *http.Client, url string) {
		begin := time.Now()
		resp, err := c.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatalf("got error %v, want none", err)
		} else if n != size {
			b.Fatalf("n = %d, want %d", n, size)
		}
		resp.Body.Close()
		took[c] += time.Since(begin)
	}
	get(through, target) // certificates are made, connections opened
	get(direct, directly)
	clear(took)
	n := 0
	for b.Loop() {
		get(through, target)
		get(direct, directly)
		n++
	}
	b.ReportMetric(float64(took[through])/float64(took[direct]), "x-direct")
	b.ReportMetric(float64(took[through].Microseconds())/float64(n), "µs-through")
	b.ReportMetric(float64(took[direct].Microseconds())/float64(n), "µs-direct")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkLatency(b *testing.B)           { ratio(b, 100, false) }
func BenchmarkLatencyOverTLS(b *testing.B)    { ratio(b, 100, true) }
func BenchmarkThroughput(b *testing.B)        { ratio(b, 32<<20, false) }
func BenchmarkThroughputOverTLS(b *testing.B) { ratio(b, 32<<20, true) }

func BenchmarkCertificate(b *testing.B) {
	a, err := newAuthority(nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := a.makeLeaf("api.example.com"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		d, err := New(Config{})
		if err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
}
