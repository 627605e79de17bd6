// Package wiretest has what tests of the protocol's child end look at.
package wiretest

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox/wire"
)

// Recorder is the stream of a connection whose other end only looks: what is
// written is kept, and there is nothing to read. It is safe for concurrent use.
type Recorder struct {
	mu   sync.Mutex // guards what follows
	sent bytes.Buffer
	gone error
}

// Write keeps p, unless the other end is gone.
func (r *Recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone != nil {
		return 0, r.gone
	}
	return r.sent.Write(p)
}

func (r *Recorder) Read([]byte) (int, error) { return 0, io.EOF }

// Close does nothing.
func (r *Recorder) Close() error { return nil }

// Fail lets every Write from now on fail with err.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = err
}

// Bytes gives what was sent since the last time.
func (r *Recorder) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := bytes.Clone(r.sent.Bytes())
	r.sent.Reset()
	return sent
}

// Frames gives the frames that were sent since the last time.
func (r *Recorder) Frames(t testing.TB) []wire.Frame {
	t.Helper()
	sent := r.Bytes()
	conn := wire.NewConn(struct {
		io.Reader
		io.WriteCloser
	}{bytes.NewReader(sent), r})
	var all []wire.Frame
	for {
		f, err := conn.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
}

// Text is what frames of one kind carry, put together.
func Text(frames []wire.Frame, kind wire.Kind) string {
	var b strings.Builder
	for _, f := range frames {
		if f.Kind == kind {
			b.Write(f.Body)
		}
	}
	return b.String()
}
