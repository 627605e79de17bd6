package wire

import (
	"bytes"
	"io"
	"testing"
)

// readBack writes a body as a frame, and reads it by the same connection.
func readBack(t *testing.T, c *Conn, body []byte) []byte {
	t.Helper()
	if err := c.Write(KindData, 1, body); err != nil {
		t.Fatal(err)
	}
	f, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.Body, body) {
		t.Fatalf("a frame of %d bytes is not what was written", len(body))
	}
	return f.Body
}

// looped gives back what is written to it.
type looped struct{ bytes.Buffer }

func (*looped) Close() error { return nil }

var _ io.ReadWriteCloser = (*looped)(nil)

func TestTheMemoryOfALargeBodyIsUsedAgain(t *testing.T) {
	const size = 512 << 10
	for name, c := range map[string]struct {
		first, second int
		from          int // where what is given back begins
		again         bool
	}{
		"one of the same size":                 {size, size, 0, true},
		"its end":                              {size, size, callHeader, true},
		"for a shorter one":                    {size, largePart, 0, true},
		"not for a small one":                  {size, largePart - 1, 0, false},
		"not for a longer one":                 {size, 2 * size, 0, false},
		"not of a small one":                   {largePart - 1, largePart - 1, 0, false},
		"not of one that is too large to keep": {3 * Window, largePart, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := NewConn(&looped{})
			first := readBack(t, conn, bytes.Repeat([]byte("a"), c.first))
			end := &first[:cap(first)][cap(first)-1]
			conn.Reuse(first[c.from:])
			second := readBack(t, conn, bytes.Repeat([]byte("b"), c.second))
			if again := &second[:cap(second)][cap(second)-1] == end; again != c.again {
				t.Errorf("the memory is used again: %v, want %v", again, c.again)
			}
			third := readBack(t, conn, bytes.Repeat([]byte("c"), c.second))
			if &third[0] == &second[0] {
				t.Error("memory that was not given back is used again")
			}
		})
	}
}
