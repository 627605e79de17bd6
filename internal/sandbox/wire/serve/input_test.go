package serve

import (
	"testing"
	"testing/synctest"

	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

func newReader() (*Input, *wiretest.Recorder) {
	p := &wiretest.Recorder{}
	return NewInput(wire.NewConn(p), 7), p
}

func wantPiece(t *testing.T, i *Input, want string) {
	t.Helper()
	if p, ok := i.Next(nil); !ok || string(p) != want {
		t.Errorf("read %q, %v; want %q", p, ok, want)
	}
}

func TestInputIsAskedForPieceByPiece(t *testing.T) {
	i, p := newReader()
	i.Begin(true)
	i.Push([]byte("hello"))
	wantPiece(t, i, "hello")
	i.Push([]byte("world"))
	wantPiece(t, i, "world")
	i.Push(nil)
	wantPiece(t, i, "")
	wantPiece(t, i, "") // the end stays the end
	frames := p.Frames(t)
	if len(frames) != 3 {
		t.Errorf("the server was asked %d times", len(frames))
	}
	for _, f := range frames {
		if f.Kind != wire.KindWantStdin {
			t.Errorf("a frame of kind %d", f.Kind)
		}
	}
}

func TestWithoutInputNobodyIsAsked(t *testing.T) {
	i, p := newReader()
	stopped := make(chan struct{})
	close(stopped)
	wantPiece(t, i, "") // before any run
	i.Begin(false)
	wantPiece(t, i, "")
	if _, ok := i.Next(stopped); !ok {
		t.Error("the end is not told to one that was interrupted")
	}
	if frames := p.Frames(t); len(frames) != 0 {
		t.Errorf("%d frames were sent", len(frames))
	}
}

func TestAnInterruptEndsAReadAndTheInputIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, p := newReader()
		i.Begin(true)
		stop, answer := make(chan struct{}), make(chan bool)
		go func() {
			p, ok := i.Next(stop)
			answer <- ok || len(p) != 0
		}()
		synctest.Wait()
		close(stop)
		if <-answer {
			t.Error("the read ended as if something had come")
		}
		if _, ok := i.Next(stop); ok {
			t.Error("a second read waits for nobody")
		}
		if n := len(p.Frames(t)); n != 1 {
			t.Errorf("the server was asked %d times", n)
		}
		i.Push([]byte("late"))
		wantPiece(t, i, "late")
	})
}

func TestWhatTheLastRunDidNotReadIsNotTheNextOnes(t *testing.T) {
	i, _ := newReader()
	i.Begin(true)
	i.Push([]byte("old, asked for and not taken"))
	i.Begin(true)
	i.Push([]byte("new"))
	wantPiece(t, i, "new")
	i.Begin(false)
	wantPiece(t, i, "")
}

// A thread of a program may go on reading when its run has ended, for ever.
func TestAReaderThatARunLeftDoesNotHoldUpTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, p := newReader()
		i.Begin(true)
		var left []string
		for range 2 {
			go func() {
				p, ok := i.Next(nil)
				if !ok {
					t.Error("it was interrupted by nobody")
				}
				left = append(left, string(p))
			}()
			synctest.Wait()
		}
		i.Begin(true)
		synctest.Wait()
		i.Push([]byte("new"))
		synctest.Wait()
		// The second one waited for its turn, and so reads what is there now.
		if len(left) != 2 || left[0] != "" || left[1] != "new" {
			t.Errorf("those that were left read %q", left)
		}
		i.Push([]byte("more"))
		wantPiece(t, i, "more")
		if n := len(p.Frames(t)); n != 3 {
			t.Errorf("the server was asked %d times", n)
		}
	})
}

func TestAServerThatSendsMoreThanItWasAskedForLosesIt(t *testing.T) {
	i, _ := newReader()
	i.Begin(true)
	for _, s := range []string{"one", "two", "three"} {
		i.Push([]byte(s)) // does not wait
	}
	wantPiece(t, i, "one")
	i.Push([]byte("four"))
	wantPiece(t, i, "four")
}
