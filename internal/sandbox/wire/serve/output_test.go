package serve

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

// newPrinter makes the output of a run that has begun.
func newPrinter(limits sandbox.RunLimits) (*Output, *wiretest.Recorder) {
	p := &wiretest.Recorder{}
	e := NewEnds(wire.NewConn(p), 7)
	e.Control.Begin(time.Hour)
	e.Out.Begin(limits)
	return e.Out, p
}

func TestOutputIsSentInPiecesAsItCame(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{})
	long := strings.Repeat("0123456789", 20_000)
	o.Write(0, []byte("first "))
	o.Write(1, []byte("complaint"))
	o.Write(0, nil)
	o.Write(0, []byte(long))
	frames := p.Frames(t)
	if got := wiretest.Text(frames, wire.KindStdout); got != "first "+long {
		t.Errorf("%d bytes of stdout came", len(got))
	}
	if got := wiretest.Text(frames, wire.KindStderr); got != "complaint" {
		t.Errorf("stderr is %q", got)
	}
	for _, f := range frames {
		if f.ID != 7 || len(f.Body) == 0 || len(f.Body) > Piece {
			t.Errorf("a frame of %d bytes for %d", len(f.Body), f.ID)
		}
	}
	if frames[1].Kind != wire.KindStderr {
		t.Error("the streams do not keep their order")
	}
}

func TestCharactersThatAreSplitComeWhole(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 3 * Piece})
	want := strings.Repeat("a", Piece-1) + "語🎉ż"
	for _, part := range [][]byte{[]byte(want)[:Piece+1], []byte(want)[Piece+1 : Piece+4], []byte(want)[Piece+4:]} {
		o.Write(0, part)
	}
	if got := wiretest.Text(p.Frames(t), wire.KindStdout); got != want {
		t.Errorf("%q came at the end", got[Piece-1:])
	}
}

func TestEachStreamIsCutAtItsOwnLimit(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		want   string
		cut    bool
	}{
		"nothing":                   {nil, "", false},
		"below":                     {[]string{"123", "4"}, "1234", false},
		"exactly":                   {[]string{"12345"}, "12345", false},
		"exactly, and nothing":      {[]string{"12345", ""}, "12345", false},
		"one over":                  {[]string{"123456"}, "12345", true},
		"over in the second":        {[]string{"123", "4567", "8"}, "12345", true},
		"over after the limit":      {[]string{"12345", "6"}, "12345", true},
		"far over in one":           {[]string{strings.Repeat("1", 300)}, "11111", true},
		"inside of a character":     {[]string{"1234ż"}, "1234\xc5", true}, // the session mends it
		"many small ones":           {strings.Split("abcdefgh", ""), "abcde", true},
		"an empty one, then others": {[]string{"", "123456"}, "12345", true},
	} {
		t.Run(name, func(t *testing.T) {
			o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 5, StderrBytes: 1 << 20})
			for _, s := range c.writes {
				o.Write(0, []byte(s))
			}
			o.Write(1, []byte("the other stream"))
			frames := p.Frames(t)
			if got := wiretest.Text(frames, wire.KindStdout); got != c.want || o.streams[0].cut != c.cut {
				t.Errorf("%q came, cut: %v", got, o.streams[0].cut)
			}
			if got := wiretest.Text(frames, wire.KindStderr); got != "the other stream" || o.streams[1].cut {
				t.Errorf("%q came on stderr, cut: %v", got, o.streams[1].cut)
			}
			if stopped := o.ctl.Level() != Going; stopped != c.cut {
				t.Errorf("the program was stopped: %v", stopped)
			}
		})
	}
}

func TestMoreThanTheLimitStopsTheProgram(t *testing.T) {
	for which, name := range []string{"stdout", "stderr"} {
		t.Run(name, func(t *testing.T) {
			o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 10, StderrBytes: 10})
			o.Write(which, []byte("0123456789"))
			if o.ctl.Level() != Going {
				t.Error("it was stopped too early")
			}
			o.Write(which, []byte("x"))
			if o.ctl.Level() != Interrupted {
				t.Error("it goes on")
			}
			o.Write(which, bytes.Repeat([]byte("12345678"), 1<<17)) // what it prints while it ends
			if cause := o.ctl.End(); cause != sandbox.OutputExceeded {
				t.Errorf("it was stopped because of %v", cause)
			}
			frames := p.Frames(t)
			if got := wiretest.Text(frames, wire.KindStdout) + wiretest.Text(frames, wire.KindStderr); got != "0123456789" {
				t.Errorf("%q was sent", got)
			}
		})
	}
}

func TestTheNextRunBeginsWithNewLimits(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 3, DisplayBytes: 1 << 10})
	o.Write(0, []byte("12345"))
	o.Display("a/b", []byte("123"))
	p.Frames(t)
	o.Begin(sandbox.RunLimits{StdoutBytes: 4, DisplayBytes: 1 << 10})
	o.Write(0, []byte("1234"))
	if got := wiretest.Text(p.Frames(t), wire.KindStdout); got != "1234" || o.streams[0].cut {
		t.Errorf("%q came, cut: %v", got, o.streams[0].cut)
	}
	if !o.Display("a/b", []byte("123")) {
		t.Error("the display is refused")
	}
}

// A program prints no faster than the server takes it.
func TestOutputWaitsForCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, p := newPrinter(sandbox.RunLimits{})
		total := 2*wire.Window + 1000
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			o.Write(0, make([]byte, total))
		}()
		came := func() int {
			synctest.Wait()
			return len(wiretest.Text(p.Frames(t), wire.KindStdout))
		}
		if n := came(); n != wire.Window || isClosed(finished) {
			t.Errorf("%d bytes came without credit", n)
		}
		o.Grant(1000)
		if n := came(); n != 1000 {
			t.Errorf("%d bytes came for a credit of 1000", n)
		}
		o.Grant(-5)
		o.Grant(0)
		if n := came(); n != 0 {
			t.Errorf("%d bytes came for nothing", n)
		}
		o.Grant(1 << 40) // no more than the window, whatever the server says
		if n := came(); n != wire.Window || !isClosed(finished) {
			t.Errorf("%d bytes came for the rest", n)
		}
		if o.credit != 0 {
			t.Errorf("a credit of %d is left", o.credit)
		}
		if o.streams[0].cut {
			t.Error("output that waited is said to be cut")
		}
	})
}

func TestWhoWaitsForCreditIsKilledAndItsOutputCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := newPrinter(sandbox.RunLimits{})
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			o.Write(1, make([]byte, wire.Window+1))
			o.Write(1, []byte("and more"))
		}()
		synctest.Wait()
		o.ctl.Interrupt(sandbox.Cancelled)
		synctest.Wait()
		if isClosed(finished) {
			t.Error("an interrupt already ends it: its last words may be under way")
		}
		time.Sleep(time.Hour) // its grace
		synctest.Wait()
		if !isClosed(finished) || !o.streams[1].cut || o.streams[0].cut {
			t.Error("it still waits, or is not cut")
		}
		o.ctl.End()
	})
}

func TestCreditOfTheLastRunIsNotCountedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, p := newPrinter(sandbox.RunLimits{})
		o.Write(0, []byte("x"))
		o.Begin(sandbox.RunLimits{})
		o.Grant(1) // comes late, and leaves a token
		go o.Write(0, make([]byte, wire.Window+10))
		synctest.Wait()
		if n := len(wiretest.Text(p.Frames(t), wire.KindStdout)); n != 1+wire.Window {
			t.Errorf("%d bytes came", n)
		}
		o.Grant(10)
		synctest.Wait()
	})
}

func TestAServerThatIsGoneHoldsNobodyUp(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{DisplayBytes: 1 << 10})
	p.Fail(errors.New("gone"))
	o.Write(0, make([]byte, 3*wire.Window)) // would wait for credit for ever
	if o.Display("image/png", []byte("x")) {
		t.Error("a display is said to have been sent")
	}
	i := NewInput(o.conn, 7)
	i.Begin(true)
	if p, ok := i.Next(nil); len(p) != 0 || !ok {
		t.Errorf("a read gives %q, %v", p, ok)
	}
}

func TestDisplays(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{DisplayBytes: 10 << 10})
	for _, c := range []struct {
		name, mime string
		size       int
		shown      bool
	}{
		{"one", "image/png", 6 << 10, true},
		{"an empty one", "text/html", 0, true}, // which counts a KiB
		{"one over the limit", "image/png", 3<<10 + 1, false},
		{"up to it", "image/png", 3 << 10, true},
		{"an empty one over it", "image/png", 0, false},
	} {
		if got := o.Display(c.mime, make([]byte, c.size)); got != c.shown {
			t.Errorf("%s: shown: %v", c.name, got)
		}
	}
	frames := p.Frames(t)
	if len(frames) != 3 || string(frames[1].Body) != "{\"mime\":\"text/html\"}\n" {
		t.Errorf("%d frames came, the second %q", len(frames), frames[1].Body)
	}
	o.Begin(sandbox.RunLimits{DisplayBytes: 10 << 10})
	if o.Display(strings.Repeat("x", 201), nil) {
		t.Error("a type of 201 bytes is shown")
	}
	o.Begin(sandbox.RunLimits{})
	if o.Display("image/png", []byte("x")) {
		t.Error("something is shown where nothing may be")
	}
}

// What a process in the background prints while nothing runs belongs to nobody
// here, and whoever waited to print in a run is let go when that ends.
func TestWhatIsPrintedWithoutARunIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &wiretest.Recorder{}
		e := NewEnds(wire.NewConn(p), 7)
		if rest := e.Out.Write(0, []byte("before")); string(rest) != "before" {
			t.Errorf("before the first run %q is given back", rest)
		}
		if e.Out.Display("a/b", nil) {
			t.Error("something is shown without a run")
		}
		e.Control.Begin(time.Hour)
		e.Out.Begin(sandbox.RunLimits{DisplayBytes: 1 << 10})
		rest := make(chan int)
		go func() { rest <- len(e.Out.Write(0, make([]byte, wire.Window+10))) }()
		synctest.Wait()
		e.Out.End()
		if n := <-rest; n != 10 {
			t.Errorf("%d bytes are given back of what could not be sent", n)
		}
		if stdout, stderr := e.Out.Cut(); stdout || stderr {
			t.Error("the run's output is said to be cut")
		}
		if rest := e.Out.Write(1, []byte("after")); string(rest) != "after" || e.Out.Tail() != "" {
			t.Errorf("after the run %q is given back, and %q is its end", rest, e.Out.Tail())
		}
		if n := len(wiretest.Text(p.Frames(t), wire.KindStdout)); n != wire.Window {
			t.Errorf("%d bytes were sent", n)
		}
		e.Control.End()
	})
}

func TestSeveralWhoWaitForCreditAllGetIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := newPrinter(sandbox.RunLimits{})
		o.Write(0, make([]byte, wire.Window))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { o.Write(0, []byte("x")) })
		}
		synctest.Wait()
		o.Grant(3)
		all.Wait()
	})
}

func TestTheEndOfStderrIsRemembered(t *testing.T) {
	o, _ := newPrinter(sandbox.RunLimits{StderrBytes: 10})
	o.Write(0, []byte("not this"))
	o.Write(1, bytes.Repeat([]byte("x"), tailBytes))
	o.Write(1, []byte("the end"))
	if tail := o.Tail(); len(tail) != tailBytes || !strings.HasSuffix(tail, "xthe end") {
		t.Errorf("%d bytes are remembered", len(tail))
	}
	o.Begin(sandbox.RunLimits{})
	if o.Tail() != "" {
		t.Error("the next run begins with it")
	}
}
