package worker

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// pipe is the worker's end of a connection whose other end only looks.
type pipe struct {
	mu   sync.Mutex // guards what follows
	sent bytes.Buffer
	err  error
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	return p.sent.Write(b)
}

func (p *pipe) Read([]byte) (int, error) { return 0, io.EOF }
func (p *pipe) Close() error             { return nil }

// frames gives what was sent since the last time.
func (p *pipe) frames(t *testing.T) []wire.Frame {
	t.Helper()
	p.mu.Lock()
	sent := bytes.Clone(p.sent.Bytes())
	p.sent.Reset()
	p.mu.Unlock()
	conn := wire.NewConn(struct {
		io.Reader
		io.WriteCloser
	}{bytes.NewReader(sent), p})
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

// text gives what was sent of one stream.
func text(frames []wire.Frame, kind wire.Kind) string {
	var b strings.Builder
	for _, f := range frames {
		if f.Kind == kind {
			b.Write(f.Body)
		}
	}
	return b.String()
}

// newPrinter makes the output of a run that has begun.
func newPrinter(limits sandbox.RunLimits) (*output, *pipe) {
	p := &pipe{}
	o := newOutput(wire.NewConn(p), 7, &control{})
	o.ctl.begin(time.Hour)
	o.begin(limits)
	return o, p
}

func TestOutputIsSentInPiecesAsItCame(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{})
	long := strings.Repeat("0123456789", 20_000)
	o.write(0, []byte("first "))
	o.write(1, []byte("complaint"))
	o.write(0, nil)
	o.write(0, []byte(long))
	frames := p.frames(t)
	if got := text(frames, wire.KindStdout); got != "first "+long {
		t.Errorf("%d bytes of stdout came", len(got))
	}
	if got := text(frames, wire.KindStderr); got != "complaint" {
		t.Errorf("stderr is %q", got)
	}
	for _, f := range frames {
		if f.ID != 7 || len(f.Body) == 0 || len(f.Body) > piece {
			t.Errorf("a frame of %d bytes for %d", len(f.Body), f.ID)
		}
	}
	if frames[1].Kind != wire.KindStderr {
		t.Error("the streams do not keep their order")
	}
}

func TestCharactersThatAreSplitComeWhole(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 3 * piece})
	want := strings.Repeat("a", piece-1) + "語🎉ż"
	for _, part := range [][]byte{[]byte(want)[:piece+1], []byte(want)[piece+1 : piece+4], []byte(want)[piece+4:]} {
		o.write(0, part)
	}
	if got := text(p.frames(t), wire.KindStdout); got != want {
		t.Errorf("%q came at the end", got[piece-1:])
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
				o.write(0, []byte(s))
			}
			o.write(1, []byte("the other stream"))
			frames := p.frames(t)
			if got := text(frames, wire.KindStdout); got != c.want || o.streams[0].cut != c.cut {
				t.Errorf("%q came, cut: %v", got, o.streams[0].cut)
			}
			if got := text(frames, wire.KindStderr); got != "the other stream" || o.streams[1].cut {
				t.Errorf("%q came on stderr, cut: %v", got, o.streams[1].cut)
			}
			if o.ctl.level.Load() != running {
				t.Error("the program was stopped")
			}
		})
	}
}

func TestAFloodStopsTheProgram(t *testing.T) {
	for which, name := range []string{"stdout", "stderr"} {
		t.Run(name, func(t *testing.T) {
			o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 10, StderrBytes: 10})
			line := []byte("12345678")
			for range floodFactor * 10 / len(line) {
				o.write(which, line)
			}
			if o.ctl.level.Load() != running {
				t.Error("it was stopped too early")
			}
			for range floodFactor { // a little more is enough
				o.write(which, line)
			}
			if o.ctl.level.Load() != interrupted {
				t.Error("it goes on")
			}
			o.write(which, bytes.Repeat(line, 1<<17)) // what it prints while it ends
			if cause := o.ctl.end(); cause != sandbox.OutputExceeded {
				t.Errorf("it was stopped because of %v", cause)
			}
			frames := p.frames(t)
			if got := text(frames, wire.KindStdout) + text(frames, wire.KindStderr); len(got) != 10 {
				t.Errorf("%d bytes were sent", len(got))
			}
		})
	}
}

func TestTheNextRunBeginsWithNewLimits(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{StdoutBytes: 3, DisplayBytes: 3})
	o.write(0, []byte("12345"))
	o.display("a/b", nil, []byte("123"))
	p.frames(t)
	o.begin(sandbox.RunLimits{StdoutBytes: 4, DisplayBytes: 3})
	o.write(0, []byte("1234"))
	if got := text(p.frames(t), wire.KindStdout); got != "1234" || o.streams[0].cut {
		t.Errorf("%q came, cut: %v", got, o.streams[0].cut)
	}
	if !o.display("a/b", nil, []byte("123")) {
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
			o.write(0, make([]byte, total))
		}()
		came := func() int {
			synctest.Wait()
			return len(text(p.frames(t), wire.KindStdout))
		}
		if n := came(); n != wire.Window || closed(finished) {
			t.Errorf("%d bytes came without credit", n)
		}
		o.grant(1000)
		if n := came(); n != 1000 {
			t.Errorf("%d bytes came for a credit of 1000", n)
		}
		o.grant(-5)
		o.grant(0)
		if n := came(); n != 0 {
			t.Errorf("%d bytes came for nothing", n)
		}
		o.grant(1 << 40) // no more than the window, whatever the server says
		if n := came(); n != wire.Window || !closed(finished) {
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
			o.write(1, make([]byte, wire.Window+1))
			o.write(1, []byte("and more"))
		}()
		synctest.Wait()
		o.ctl.interrupt(sandbox.Cancelled)
		synctest.Wait()
		if closed(finished) {
			t.Error("an interrupt already ends it: its last words may be under way")
		}
		time.Sleep(time.Hour) // its grace
		synctest.Wait()
		if !closed(finished) || !o.streams[1].cut || o.streams[0].cut {
			t.Error("it still waits, or is not cut")
		}
		o.ctl.end()
	})
}

func TestCreditOfTheLastRunIsNotCountedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, p := newPrinter(sandbox.RunLimits{})
		o.write(0, []byte("x"))
		o.begin(sandbox.RunLimits{})
		o.grant(1) // comes late, and leaves a token
		go o.write(0, make([]byte, wire.Window+10))
		synctest.Wait()
		if n := len(text(p.frames(t), wire.KindStdout)); n != 1+wire.Window {
			t.Errorf("%d bytes came", n)
		}
		o.grant(10)
		synctest.Wait()
	})
}

func TestAServerThatIsGoneHoldsNobodyUp(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{DisplayBytes: 100})
	p.err = errors.New("gone")
	o.write(0, make([]byte, 3*wire.Window)) // would wait for credit for ever
	if o.display("image/png", nil, []byte("x")) {
		t.Error("a display is said to have been sent")
	}
	i := newInput(o.conn, 7, o.ctl)
	i.begin(true)
	if n, ok := i.read(make([]byte, 10)); n != 0 || !ok {
		t.Errorf("a read gives %d, %v", n, ok)
	}
}

func TestDisplays(t *testing.T) {
	o, p := newPrinter(sandbox.RunLimits{DisplayBytes: 10})
	for _, c := range []struct {
		name, mime string
		size       int
		shown      bool
	}{
		{"one", "image/png", 6, true},
		{"up to the limit", "image/png", 4, true},
		{"an empty one", "text/html", 0, true},
		{"one over it", "image/png", 1, false},
	} {
		if got := o.display(c.mime, []byte(`{"mime":"x"}`), make([]byte, c.size)); got != c.shown {
			t.Errorf("%s: shown: %v", c.name, got)
		}
	}
	frames := p.frames(t)
	if len(frames) != 3 || string(frames[0].Body) != "{\"mime\":\"x\"}\n\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%d frames came, the first %q", len(frames), frames[0].Body)
	}
	o.begin(sandbox.RunLimits{DisplayBytes: 10})
	if o.display(strings.Repeat("x", 201), nil, nil) {
		t.Error("a type of 201 bytes is shown")
	}
	o.begin(sandbox.RunLimits{})
	if o.display("image/png", nil, []byte("x")) {
		t.Error("something is shown where nothing may be")
	}
}

func newReader() (*input, *pipe) {
	p := &pipe{}
	i := newInput(wire.NewConn(p), 7, &control{})
	i.ctl.begin(time.Hour)
	return i, p
}

func wantRead(t *testing.T, i *input, size int, want string) {
	t.Helper()
	b := make([]byte, size)
	if n, ok := i.read(b); !ok || string(b[:n]) != want {
		t.Errorf("read %q, %v; want %q", b[:n], ok, want)
	}
}

func TestInputIsAskedForAndReadInPieces(t *testing.T) {
	i, p := newReader()
	i.begin(true)
	i.push([]byte("hello"))
	wantRead(t, i, 3, "hel")
	wantRead(t, i, 10, "lo")
	i.push([]byte("world"))
	wantRead(t, i, 100, "world")
	i.push(nil)
	wantRead(t, i, 100, "")
	wantRead(t, i, 100, "") // the end stays the end
	frames := p.frames(t)
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
	wantRead(t, i, 10, "") // before any run
	i.begin(false)
	wantRead(t, i, 10, "")
	if frames := p.frames(t); len(frames) != 0 {
		t.Errorf("%d frames were sent", len(frames))
	}
}

func TestAnInterruptEndsAReadAndTheInputIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, p := newReader()
		i.begin(true)
		answer := make(chan bool)
		go func() {
			n, ok := i.read(make([]byte, 10))
			answer <- ok || n != 0
		}()
		synctest.Wait()
		i.ctl.interrupt(sandbox.Cancelled)
		if <-answer {
			t.Error("the read ended as if something had come")
		}
		if _, ok := i.read(make([]byte, 10)); ok {
			t.Error("a second read waits for nobody")
		}
		if n := len(p.frames(t)); n != 1 {
			t.Errorf("the server was asked %d times", n)
		}
		i.ctl.end()
	})
}

func TestWhatTheLastRunDidNotReadIsNotTheNextOnes(t *testing.T) {
	i, _ := newReader()
	i.begin(true)
	i.push([]byte("old, half read"))
	wantRead(t, i, 3, "old")
	i.push([]byte("old, asked for and not taken"))
	i.begin(true)
	i.push([]byte("new"))
	wantRead(t, i, 100, "new")
	i.begin(false)
	wantRead(t, i, 100, "")
}

func TestAServerThatSendsMoreThanItWasAskedForLosesIt(t *testing.T) {
	i, _ := newReader()
	i.begin(true)
	for _, s := range []string{"one", "two", "three"} {
		i.push([]byte(s)) // does not wait
	}
	wantRead(t, i, 100, "one")
	i.push([]byte("four"))
	wantRead(t, i, 100, "four")
}
