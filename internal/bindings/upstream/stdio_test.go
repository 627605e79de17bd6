package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/fault"
)

func TestAProgramOfTheGoSDKIsSpokenToInTheModernEra(t *testing.T) {
	c := dial(t, played(t, "good"), Options{})
	switch info := c.Info(); {
	case info.Era != Modern:
		t.Errorf("info.Era = %v, want %v: %+v", info.Era, Modern, info)
	case info.Name != "sdk":
		t.Errorf(`info.Name = %q, want "sdk"`, info.Name)
	case info.Instructions != "be kind":
		t.Errorf(`info.Instructions = %q, want "be kind"`, info.Instructions)
	}
	r := call(t, c, "echo", `{"z":"ü<","a":9007199254740993}`)
	switch {
	case !strings.HasSuffix(string(r.Structured), `,"a":9007199254740993}`):
		t.Errorf("r.Structured = %q, want suffix %q", string(r.Structured), `,"a":9007199254740993}`)
	case r.Content[0].Text != `{"z":"ü<","a":9007199254740993}`:
		t.Errorf("r.Content[0].Text = %q, want %q", r.Content[0].Text, `{"z":"ü<","a":9007199254740993}`)
	case r.IsError:
		t.Errorf("r.IsError = true, want false: %s, %+v", r.Structured, r.Content)
	}
}

func TestWhatAServerSaysOfItsToolsIsKeptByteForByte(t *testing.T) {
	c := dial(t, played(t, "good"), Options{})
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	echo := tools[slices.IndexFunc(tools, func(tool bindings.Tool) bool { return tool.Name == "echo" })]
	if want := `{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}},"required":["z"]}`; string(echo.Input) != want {
		t.Errorf("the schema is %s", echo.Input)
	}
	switch {
	case echo.Output != nil:
		t.Errorf("the tool: echo.Output = %v, want nil: %+v", echo.Output, echo)
	case echo.Annotations.ReadOnly == nil:
		t.Errorf("the tool: echo.Annotations.ReadOnly is nil, want a value: %+v", echo)
	case !*echo.Annotations.ReadOnly:
		t.Errorf("the tool: *echo.Annotations.ReadOnly = false, want true: %+v", echo)
	case echo.Annotations.Idempotent != nil && *echo.Annotations.Idempotent:
		t.Errorf("the tool: *echo.Annotations.Idempotent = true, want false or nil: %+v", echo)
	}
}

func TestASilentServerIsSpokenToInTheLegacyEraAndThatIsRemembered(t *testing.T) {
	t.Parallel()
	eras := NewEras()
	s := played(t, "silent")
	c := dial(t, s, Options{Eras: eras})
	if info := c.Info(); info.Era != Legacy {
		t.Errorf("info.Era = %q, want %q: %+v", info.Era, Legacy, info)
	} else if info.Protocol != "2025-06-18" {
		t.Errorf(`info.Protocol = %q, want "2025-06-18": %+v`, info.Protocol, info)
	}
	call(t, c, "do", `{}`)
	if eras.Era(s.Place()) != Legacy {
		t.Error("its era is not remembered")
	}
	ctx, cancel := context.WithTimeout(t.Context(), probeCommand)
	defer cancel()
	again, err := Dial(ctx, s, Options{Eras: eras})
	if err != nil {
		t.Fatalf("the second time it takes longer than a probe: %v", err)
	}
	_ = again.Close()
}

func TestARememberedEraThatIsWrongIsFoundOut(t *testing.T) {
	for part, wrong := range map[string]Era{"old": Modern, "good": Legacy} {
		eras := NewEras()
		s := played(t, part)
		eras.Remember(s.Place(), wrong)
		if got := names(t, dial(t, s, Options{Eras: eras})); len(got) == 0 {
			t.Errorf("%s has no tools", part)
		}
	}
}

func TestProgressAndMetaReachWhomTheyAreFor(t *testing.T) {
	c := dial(t, played(t, "good"), Options{})
	var got []Progress
	r, err := c.Call(t.Context(), "slow", nil, CallOptions{
		Meta: map[string]any{"key": "run-1"}, Progress: func(p Progress) { got = append(got, p) },
	})
	if err != nil {
		t.Fatalf("it answered: got error %v, want none", err)
	}
	if r.Content[0].Text != "run-1" {
		t.Fatalf(`it answered: r.Content[0].Text = %q, want "run-1": %+v`, r.Content[0].Text, r)
	}
	if len(got) != 3 {
		t.Errorf("the progress: len(got) = %d, want 3: %+v", len(got), got)
	} else if got[2] != (Progress{3, 3, "step"}) {
		t.Errorf("the progress: got[2] = %+v, want %+v", got[2], Progress{3, 3, "step"})
	}
}

func TestWhatALoggerPrintsEndsNothing(t *testing.T) {
	c := dial(t, played(t, "logs"), Options{})
	for range 3 {
		if r := call(t, c, "do", `{}`); string(r.Structured) != `{"answer":1}` {
			t.Errorf("it answered %s", r.Structured)
		}
	}
}

// Each of these is an attack (83, 85): what it ends with is a typed error, and soon.
func TestABadProgramEndsInATypedError(t *testing.T) {
	for part, want := range map[string]struct {
		reason Reason
		stderr string
	}{
		"exits":     {Closed, "it hurts"},
		"malformed": {Malformed, ""},
		"huge":      {TooLarge, ""},
		"flood":     {Flooded, ""},
		"never":     {TimedOut, ""},
		"shuts":     {Closed, ""},
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			s := played(t, part)
			s.ResponseCap = 1 << 20
			c := dial(t, s, Options{Eras: legacyOnly{}})
			before := heap()
			timeout := timeout
			if want.reason == TimedOut {
				timeout = time.Second
			}
			_, err := c.Call(t.Context(), "do", nil, CallOptions{Timeout: timeout})
			var e *Error
			switch {
			case !errors.As(err, &e):
				t.Fatalf("error %v, want a %T", err, e)
			case e.Reason != want.reason:
				t.Fatalf("e.Reason = %v, want %v: %+v", e.Reason, want.reason, e)
			case !e.Unknown():
				t.Fatalf("e.Unknown() = false, want true: %+v", e)
			case e.Tool != "do":
				t.Fatalf(`e.Tool = %q, want "do"`, e.Tool)
			}
			if !strings.Contains(e.Stderr, want.stderr) {
				t.Errorf("what it wrote is not there: %q", e.Stderr)
			}
			if grown := heap() - before; grown > 200<<20 {
				t.Errorf("it took %d MiB", grown>>20)
			}
		})
	}
}

// legacyOnly spares tests the probe.
type legacyOnly struct{}

func (legacyOnly) Era(string) Era       { return Legacy }
func (legacyOnly) Remember(string, Era) {}

func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAProgramThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := Dial(t.Context(), played(t, "dead", "KEY=secret-value"), Options{})
	var e *Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("error %v, want a %T", err, e)
	case e.Reason != Closed:
		t.Errorf("e.Reason = %v, want %v: %+v", e.Reason, Closed, e)
	case e.Sent:
		t.Errorf("e.Sent = true, want false: %+v", e)
	case e.Stderr != "no key was given":
		t.Errorf(`e.Stderr = %q, want "no key was given"`, e.Stderr)
	case !strings.Contains(err.Error(), "exit status 3"):
		t.Errorf(`err = %q, want "exit status 3" in it`, err.Error())
	}
	_, err = Dial(t.Context(), Server{Name: "none", Command: "there-is-no-such-program"}, Options{Environ: os.Environ()})
	if ReasonOf(err) != Unreachable {
		t.Errorf("got an error of the reason %q, want %q: %v", ReasonOf(err), Unreachable, err)
	} else if fault.Of(err).Hint == "" {
		t.Error("fault.Of(err).Hint is empty, want some")
	}
	if _, err = Dial(t.Context(), played(t, "unreadable"), Options{Eras: legacyOnly{}}); ReasonOf(err) != Closed && ReasonOf(err) != Malformed {
		t.Errorf("it ended with %v", err)
	}
}

func TestAProgramGetsAMinimalEnvironmentAndNoShell(t *testing.T) {
	s := played(t, "environ", "OWN=mine")
	s.Args = []string{"$(touch /tmp/x)", "; ls"}
	c := dial(t, s, Options{Eras: legacyOnly{}, Environ: []string{"PATH=/bin", "HOME=/home", "LANG=C", "AWS_SECRET_ACCESS_KEY=no", "LD_PRELOAD=no", "TMPDIR=/tmp"}})
	var got struct{ Answer []string }
	if err := json.Unmarshal(call(t, c, "do", `{}`).Structured, &got); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.Answer)
	want := []string{"HOME=/home", "LANG=C", "OWN=mine", "PATH=/bin", "TMPDIR=/tmp", role + "=environ"}
	if slices.Sort(want); !slices.Equal(got.Answer, want) && runtime.GOOS != "windows" {
		t.Errorf("its environment is %q", got.Answer)
	}
}

func TestAProgramsChildrenEndWithIt(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*Conn){
		"when the connection is closed": func(c *Conn) { _ = c.Close() },
		"when it dies by itself": func(c *Conn) {
			_, _ = c.Call(context.Background(), "do", nil, CallOptions{})
			<-c.Done()
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := temp(t, "child")
			c := dial(t, played(t, "parent", "CHILD="+file), Options{Eras: legacyOnly{}})
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			child, err := strconv.Atoi(string(data))
			if err != nil {
				t.Fatalf("its child %s does not live: got error %v, want none", data, err)
			}
			if !alive(child) {
				t.Fatalf("its child %s does not live: alive(child) = false, want true", data)
			}
			own := c.link.(*process).cmd.Process.Pid
			end(c)
			eventually(t, "its child ended", func() bool { return !alive(child) })
			eventually(t, "it ended and is not a zombie", func() bool { return !alive(own) })
		})
	}
}

func TestAStubbornProgramIsKilled(t *testing.T) {
	t.Parallel()
	c := dial(t, played(t, "stubborn"), Options{Eras: legacyOnly{}})
	own := c.link.(*process).cmd.Process.Pid
	if err := c.Close(); err != nil {
		t.Errorf("closed: got error %v, want none", err)
	} else if alive(own) {
		t.Error("closed: alive(own) = true, want false")
	}
	if _, err := c.Call(t.Context(), "do", nil, CallOptions{}); ReasonOf(err) != Closed {
		t.Errorf("a call after the end: got an error of the reason %q, want %q: %v", ReasonOf(err), Closed, err)
	} else if Sent(err) {
		t.Errorf("a call after the end: Sent(err) = true, want false: %v", err)
	}
}

func TestAProgramThatDoesNotReadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	c := dial(t, played(t, "deaf"), Options{Eras: legacyOnly{}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = c.Call(ctx, "do", nil, CallOptions{}) }()
	defer cancel()
	big := `{"x":"` + strings.Repeat("x", 1<<20) + `"}` // more than a pipe holds
	_, err := c.Call(t.Context(), "do", json.RawMessage(big), CallOptions{Timeout: 500 * time.Millisecond})
	if ReasonOf(err) != TimedOut {
		t.Errorf("got an error of the reason %q, want %q: %v", ReasonOf(err), TimedOut, err)
	} else if !Sent(err) {
		t.Errorf("Sent(err) = false, want true: %v", err)
	}
	<-c.Done() // half a line was written
}

func TestStderrIsBoundedAndHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := dial(t, played(t, "stderr", "API_KEY=hunter2-hunter2"), Options{Eras: legacyOnly{}, Log: logTo(&log)})
	call(t, c, "do", `{}`)
	p := c.link.(*process)
	eventually(t, "its last line was read", func() bool { return strings.Contains(p.stderr(), "the key is") })
	if text := p.stderr(); len(text) > tailSize {
		t.Errorf("len(text) = %d, want at most %d", len(text), tailSize)
	} else if strings.Contains(text, "hunter2") {
		t.Errorf(`text = %q, want no "hunter2" in it`, text)
	}
	_ = c.Close()
	if n := strings.Count(log.String(), "\n"); n > mostLogged+10 {
		t.Errorf("n = %d, want at most %d", n, mostLogged+10)
	} else if strings.Contains(log.String(), "hunter2") {
		t.Errorf(`log.String() = %q, want no "hunter2" in it`, log.String())
	}
}

// A value is in no part of what is cut, and not line by line either.
func TestStderrHoldsNoPartOfASecret(t *testing.T) {
	const key = "-----BEGIN KEY-----\nhunter2-hunter2\n-----END KEY-----"
	for name, text := range map[string]string{
		"of many lines":       "it is\n" + key + "\n",
		"after a like text":   "-----BEGIN KEY-----\n" + key + "\nthe end",
		"in a long line":      strings.Repeat("a", tailSize-7) + "hunter3-hunter3" + strings.Repeat("b", 100) + "\n",
		"at the end":          "it is hunter3-hunter3",
		"two":                 "hunter3-hunter3hunter3-hunter3-hunter4",
		"a longer one's part": "hunter3-hunter3-hunter4",
		"half of one":         "it is hunt",
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			var log bytes.Buffer
			tail := newTail(map[string]string{"KEY": key, "OTHER": "hunter3-hunter3", "LONG": "hunter3-hunter3-hunter4", "SHORT": "abc"}, logTo(&log))
			tail.readFrom(r, nil)
			all := tail.String() + log.String()
			switch {
			case strings.Contains(all, "hunter"):
				t.Errorf(`%s: it keeps: all = %q, want no "hunter" in it`, name, all)
			case strings.Contains(all, "unter"):
				t.Errorf(`%s: it keeps: all = %q, want no "unter" in it`, name, all)
			case strings.Contains(all, "***") == (name == "half of one"):
				t.Errorf(`%s: it keeps: strings.Contains(all, "***") = %v, want other than %v: %q`,
					name, strings.Contains(all, "***"), name == "half of one", all)
			}
			if name == "half of one" && tail.String() != text {
				t.Errorf("%s: it keeps %q", name, all)
			}
		}
	}
}

func TestAProgramThatPrintsThingsIsUnderstood(t *testing.T) {
	c := dial(t, played(t, "chatty"), Options{Eras: legacyOnly{}})
	call(t, c, "do", `{}`)
}

func TestWhatAServerAsksForIsRefusedAndPingsAreAnswered(t *testing.T) {
	c := dial(t, played(t, "pings"), Options{Eras: legacyOnly{}})
	text := string(call(t, c, "do", `{}`).Structured)
	if !strings.Contains(text, `\"id\":\"p\",\"result\":{}`) {
		t.Errorf("text = %q, want %q in it", text, `\"id\":\"p\",\"result\":{}`)
	} else if !strings.Contains(text, `-32601`) {
		t.Errorf(`text = %q, want "-32601" in it`, text)
	}
}

func TestAResultThatIsNotWhatWasPromisedIsATypedError(t *testing.T) {
	c := dial(t, played(t, "lies"), Options{Eras: legacyOnly{}})
	names(t, c)
	for lie, want := range map[string]Reason{
		"nothing": BadResult, "kind": BadResult, "field": BadResult, "image": Malformed, "block": Malformed, "asks": Unanswerable, "other": Malformed,
	} {
		_, err := c.Call(t.Context(), "do", json.RawMessage(`{"lie":"`+lie+`"}`), CallOptions{})
		var e *Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%s: error %v, want a %T", lie, err, e)
		case e.Reason != want:
			t.Errorf("%s: e.Reason = %v, want %v: %+v", lie, e.Reason, want, e)
		case !e.Sent:
			t.Errorf("%s: e.Sent = false, want true: %+v", lie, e)
		case e.Unknown():
			t.Errorf("%s: e.Unknown() = true, want false: %+v", lie, e)
		}
	}
}

func TestArgumentsThatAreNoObjectAreNotSent(t *testing.T) {
	c := dial(t, played(t, "old"), Options{Eras: legacyOnly{}})
	for _, arguments := range []string{`[1]`, `{"a":`, `"x"`, ``, `{} {}`} {
		_, err := c.Call(t.Context(), "do", json.RawMessage(arguments), CallOptions{})
		if ReasonOf(err) != Misused {
			t.Errorf("%q: got an error of the reason %q, want %q: %v", arguments, ReasonOf(err), Misused, err)
		} else if Sent(err) {
			t.Errorf("%q: Sent(err) = true, want false: %v", arguments, err)
		}
	}
}

func TestACancelledCallEndsAtOnceAndHarmsNoOther(t *testing.T) {
	c := dial(t, played(t, "good"), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	begun := make(chan struct{}, 3)
	go func() {
		_, err := c.Call(ctx, "slow", json.RawMessage(`{"wait":true}`), CallOptions{Progress: func(Progress) { begun <- struct{}{} }})
		ended <- err
	}()
	<-begun
	cancel()
	switch err := <-ended; {
	case ReasonOf(err) != Cancelled:
		t.Errorf("ReasonOf(err) = %v, want %v: %v", ReasonOf(err), Cancelled, err)
	case !Sent(err):
		t.Errorf("Sent(err) = false, want true: %v", err)
	case fault.KindOf(err) != fault.Cancelled:
		t.Errorf("error %v, want kind %v", err, fault.Cancelled)
	}
	call(t, c, "echo", `{"z":"on"}`)
}

func TestAChangedListIsFetchedAgain(t *testing.T) {
	c := dial(t, played(t, "good"), Options{})
	if slices.Contains(names(t, c), "grown") {
		t.Fatal("it is there from the beginning")
	}
	call(t, c, "grow", `{}`)
	eventually(t, "the new tool is listed", func() bool { return slices.Contains(names(t, c), "grown") })
}
