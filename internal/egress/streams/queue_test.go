package streams

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"paddock/internal/egress/proxy"
)

func TestAQueueGivesWhatWasPutInItsOrder(t *testing.T) {
	const most = 5000
	r := rand.New(rand.NewPCG(1, 2))
	var q queue
	var want []byte // what was put and not taken
	var given, copies [][]byte
	next := byte(0)
	for range 20_000 {
		switch r.IntN(4) {
		case 0, 1:
			p := make([]byte, r.IntN(most-len(want)+1))
			for k := range p {
				p[k] = next
				next++
			}
			q.put(p, most)
			want = append(want, p...)
		case 2:
			p := make([]byte, r.IntN(most)+1)
			n := q.read(p)
			if !bytes.Equal(p[:n], want[:min(len(p), len(want))]) {
				t.Fatalf("read gives %d bytes that are not the next", n)
			}
			want = want[n:]
		case 3:
			if len(want) == 0 {
				continue
			}
			b := q.take(r.IntN(most) + 1)
			copy(b, rawHead) // as an answer does
			if !bytes.Equal(b[headroom:], want[:len(b)-headroom]) {
				t.Fatalf("take gives %d bytes that are not the next", len(b)-headroom)
			}
			want = want[len(b)-headroom:]
			if r.IntN(2) == 0 {
				q.giveBack(b)
			} else if len(given) < 50 {
				given, copies = append(given, b), append(copies, bytes.Clone(b))
			}
		}
		if q.len() != len(want) {
			t.Fatalf("it has %d bytes, want %d", q.len(), len(want))
		}
		if c := cap(q.buffer) + cap(q.spare); c > most+headroom && q.buffer == nil || c > 2*(most+headroom) {
			t.Fatalf("it keeps %d bytes of memory, want at most %d", c, most+headroom)
		}
		if len(want) == 0 && q.buffer != nil {
			t.Fatal("an empty one keeps memory, want none")
		}
	}
	for k := range given {
		if !bytes.Equal(given[k], copies[k]) {
			t.Fatal("what was given changed later: it is not the caller's alone")
		}
	}
}

// A guest that names lengths and places as it likes gets the next bytes of its stream
// behind one line, or an error: never more than there may be at once.
func TestReadsOfAnyLengthKeepTheFrame(t *testing.T) {
	table := tableOf(t, Config{Buffer: 4096}, proxy.Config{})
	n, other := table.openLocal(t), table.openLocal(t)
	for _, stream := range []int{n, other} {
		table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":0}`, stream), "GET /large HTTP/1.0\r\nHost: local.test\r\n\r\n")
	}
	var got []byte
	for k, most := range []string{"1", "0", "-1", "4095", "-9223372036854775808", "9223372036854775807", "1048577", "null", "4097"} {
		s := table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":%d,"max":%s}`, n, len(got), most))
		if len(s.Value.Bytes) == 0 || len(s.Value.Bytes) > 4096 || most == "1" && len(s.Value.Bytes) != 1 {
			t.Errorf("max %s gives %d bytes: %+v", most, len(s.Value.Bytes), s.Error)
		}
		got = append(got, s.Value.Bytes...)
		if k%2 == 0 { // another stream in between takes nothing of it
			table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":%d,"max":1}`, other, k/2))
		}
	}
	if rest := table.all(t, n, len(got)); !strings.HasSuffix(string(got)+rest, strings.Repeat("x", 2<<20)) || !strings.HasPrefix(string(got), "HTTP/1.0 200 OK\r\n") {
		t.Errorf("it reads %d bytes, of which some are not the answer's", len(got)+len(rest))
	}
	for _, line := range []string{
		`{"op":"net.read","stream":%d,"at":-1}`, `{"op":"net.read","stream":%d,"at":9223372036854775807}`,
		`{"op":"net.read","stream":%d,"at":-9223372036854775808,"max":-1}`, `{"op":"net.read","stream":%d,"at":1e30}`,
		`{"op":"net.read","stream":%d,"at":0,"max":1.5}`, `{"op":"net.read","stream":%d,"at":0,"max":99999999999999999999}`,
	} {
		if s := table.ask(t, fmt.Sprintf(line, n)); s.Error.Kind != kindReset && s.Error.Kind != kindInvalid {
			t.Errorf("%s: %+v, want a failure", line, s)
		}
	}
}
