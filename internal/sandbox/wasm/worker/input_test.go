package worker

import (
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
	"paddock/internal/sandbox/wire/wiretest"
)

func TestAGuestReadsPiecesInParts(t *testing.T) {
	p := &wiretest.Recorder{}
	i := input{Ends: serve.NewEnds(wire.NewConn(p), 7)}
	read := func(size int, want string) {
		t.Helper()
		b := make([]byte, size)
		if n, ok := i.read(b); !ok || string(b[:n]) != want {
			t.Errorf("read %q, %v; want %q", b[:n], ok, want)
		}
	}
	i.Control.Begin(time.Hour)
	i.begin(true)
	i.In.Push([]byte("hello"))
	read(3, "hel")
	read(10, "lo")
	i.In.Push([]byte("old, half read"))
	read(3, "old")
	i.begin(true)
	i.In.Push([]byte("new"))
	read(100, "new")
	if frames := p.Frames(t); len(frames) != 3 {
		t.Errorf("the server was asked %d times", len(frames))
	}
	i.Control.Interrupt(sandbox.Cancelled)
	if n, ok := i.read(make([]byte, 10)); ok || n != 0 {
		t.Errorf("an interrupted read gives %d bytes, %v", n, ok)
	}
}
