package upstream

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"paddock/internal/fault"
)

func TestADefinitionIsRefusedWithAllThatIsWrong(t *testing.T) {
	good := []Server{
		{Name: "a", Command: "npx", Args: []string{"-y", "x; rm -rf /"}, Env: map[string]string{"A": "b"}},
		{Name: "a", URL: "https://h.example/mcp?x=1", Headers: map[string]string{"Authorization": "Bearer x"}, Transport: TransportSSE},
	}
	for _, s := range good {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for name, s := range map[string]Server{
		"nothing":                {},
		"no name":                {Command: "x"},
		"both":                   {Name: "a", Command: "x", URL: "http://h"},
		"a file":                 {Name: "a", URL: "file:///etc/passwd"},
		"no host":                {Name: "a", URL: "http:///x"},
		"a password":             {Name: "a", URL: "http://me:hunter2@h.example"},
		"a fragment":             {Name: "a", URL: "http://h.example/#x"},
		"what is not a URL":      {Name: "a", URL: "http://hunter2\x7f"},
		"a split header":         {Name: "a", URL: "http://h", Headers: map[string]string{"X": "a\r\nhunter2: c"}},
		"a header's odd name":    {Name: "a", URL: "http://h", Headers: map[string]string{"X Y": "hunter2"}},
		"the protocol's header":  {Name: "a", URL: "http://h", Headers: map[string]string{"mcp-session-id": "hunter2"}},
		"another host's header":  {Name: "a", URL: "http://h", Headers: map[string]string{"host": "hunter2"}},
		"a transport":            {Name: "a", URL: "http://h", Transport: "carrier pigeon"},
		"headers for a command":  {Name: "a", Command: "x", Headers: map[string]string{"X": "hunter2"}},
		"variables for a URL":    {Name: "a", URL: "http://h", Env: map[string]string{"A": "hunter2"}},
		"an odd variable":        {Name: "a", Command: "x", Env: map[string]string{"A=B": "hunter2"}},
		"a NUL in a variable":    {Name: "a", Command: "x", Env: map[string]string{"A": "hunter2\x00"}},
		"a NUL in the arguments": {Name: "a", Command: "x", Args: []string{"\x00"}},
	} {
		err := s.Check()
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got an error of the kind %q, want %q: %v", name, fault.KindOf(err), fault.Invalid, err)
		} else if strings.Contains(cause(err), "hunter2") {
			t.Errorf(`%s: cause(err) = %q, want no "hunter2" in it`, name, cause(err))
		}
	}
	if err := (Server{Args: []string{"x"}, URL: "ftp://x", Transport: "y"}).Check(); strings.Count(err.Error(), ";") < 3 {
		t.Errorf("not all is told: %v", err)
	}
}

func TestAKeyChangesWithTheDefinition(t *testing.T) {
	a := Server{Name: "a", URL: "http://h/mcp", Headers: map[string]string{"X": "1", "Y": "2"}}
	b := a
	b.Headers = map[string]string{"Y": "2", "X": "1"}
	if a.Key() != b.Key() {
		t.Errorf("the same definition has two keys: a.Key() = %q, want %q", a.Key(), b.Key())
	} else if a.Place() != b.Place() {
		t.Errorf("the same definition has two places: a.Place() = %q, want %q", a.Place(), b.Place())
	}
	b.Headers = map[string]string{"X": "hunter2"}
	switch {
	case a.Key() == b.Key():
		t.Errorf("another secret has the same key, or another place: a.Key() = %v, want other than %v",
			a.Key(), b.Key())
	case strings.Contains(b.Key(), "hunter2"):
		t.Errorf(`another secret has the same key, or another place: b.Key() = %q, want no "hunter2" in it`,
			b.Key())
	case a.Place() != b.Place():
		t.Errorf("another secret has the same key, or another place: a.Place() = %v, want %v",
			a.Place(), b.Place())
	}
}

func TestOriginsAreComparedInOneForm(t *testing.T) {
	for a, b := range map[string]string{"http://H.example": "http://h.example:80", "HTTPS://h/x": "https://h:443/y", "http://[::1]/": "http://[::1]:80"} {
		if x, y := mustParse(t, a), mustParse(t, b); origin(x) != origin(y) {
			t.Errorf("%s is not %s", a, b)
		}
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// The message may have arrived although it was never heard that it has.
func TestACallThatIsCancelledWhileItIsSentIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var sent []string
		x := newMux(func(message) {}, nil)
		x.send = func(_ context.Context, data []byte) (bool, error) {
			sent = append(sent, string(data))
			if len(sent) == 1 {
				cancel()
				return true, ctx.Err()
			}
			return true, nil
		}
		_, err := x.call(ctx, outgoing{id: 7, method: "tools/call"})
		if p := asProblem(err, false); p.reason != Cancelled {
			t.Errorf("p.reason = %q, want %q: %+v", p.reason, Cancelled, p)
		} else if !p.sent {
			t.Errorf("p.sent = false, want true: %+v", p)
		}
		x.tasks.Wait()
		if len(sent) != 2 {
			t.Errorf("it sent: len(sent) = %d, want 2: %q", len(sent), sent)
		} else if !strings.Contains(sent[1], `"requestId":7`) {
			t.Errorf("it sent: sent[1] = %q, want %q in it", sent[1], `"requestId":7`)
		}
	})
}

func TestWhatAServerSaysIsCleanedBeforeItIsCut(t *testing.T) {
	clean := func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("s3cret"), []byte("<x>")) }
	long := strings.Repeat("a", maxRefusal-3) + "s3cret and more"
	for want, err := range map[string]error{
		`the tool "do" of the server "a": it refused: ` + long[:maxRefusal-3] + "<x>…":          newProblem(Refused, true, nil, "it refused: %s", saying(long, maxRefusal)),
		`the tool "do" of the server "a": it answered with the type "text/<x>"`:                 malformed(nil, "it answered with the type %q", saying("text/s3cret", 8)),
		`the tool "do" of the server "a": it wants a token`:                                     newProblem(Refused, true, nil, "%s s3cret", "x").say("it wants a token"),
		`the tool "do" of the server "a": it answered with ` + strings.Repeat("<x>", 33) + "<…": newProblem(Refused, true, nil, "it answered with %s", saying(strings.Repeat("s3cret", maxSaid), 100)),
	} {
		var e *Error
		if !errors.As(report(Server{Name: "a"}, "do", "", err), &e) {
			t.Fatal("it is none")
		}
		c := e.Clean(clean)
		switch got := fault.Of(c).Message; {
		case got != want:
			t.Errorf("got = %v, want %v", got, want)
		case c.Error() != want:
			t.Errorf("c = %q, want %q", c.Error(), want)
		case c.Reason != e.Reason:
			t.Errorf("c.Reason = %v, want %v: %q, %q", c.Reason, e.Reason, got, want)
		}
	}
}

func TestAnErrorOfAnIssuerIsFoundInATree(t *testing.T) {
	err := report(Server{Name: "a"}, "do", "", &problem{reason: Unauthorized, cause: &NeedsAuthorization{Server: "a", Scope: "x"}})
	var needs *NeedsAuthorization
	switch {
	case !errors.As(err, &needs):
		t.Errorf("error %v, want a %T", err, needs)
	case needs.Scope != "x":
		t.Errorf(`needs.Scope = %q, want "x"`, needs.Scope)
	case fault.KindOf(err) != fault.Denied:
		t.Errorf("error %v, want kind %v", err, fault.Denied)
	case Sent(err):
		t.Errorf("Sent(err) = true, want false: %v", err)
	}
}
