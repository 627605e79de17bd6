package mcpserver

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

func ran(stdout, stderr string, displays ...sandbox.Display) session.Result {
	return session.Result{
		Session: "s", Execution: "x", Isolation: "wasm", Stdout: stdout, Stderr: stderr, Displays: displays,
		Exit: sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept},
	}
}

func TestLongOutputIsCutInTheMiddle(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	tests := []struct {
		name           string
		stdout, stderr string
		cutOut, cutErr bool
	}{
		{"short output is whole", "a\n", "b\n", false, false},
		{"just as much as fits", strings.Repeat("a", maxOutput-len("first\nlast\n")-10), "0123456789", false, false},
		{"long stdout leaves stderr whole", strings.Repeat(line, 5000), "why\n", true, false},
		{"long stderr leaves stdout whole", "what\n", strings.Repeat(line, 5000), false, true},
		{"both are long", strings.Repeat(line, 5000), strings.Repeat(line, 5000), true, true},
		{"one line without an end", strings.Repeat("ä€😀", 50_000), "", true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := Describe(ran("first\n"+test.stdout+"last\n", test.stderr))
			if cut := e.Stdout != "first\n"+test.stdout+"last\n"; cut != e.StdoutTruncated {
				t.Errorf("stdout: cut: got %v, want %v", cut, e.StdoutTruncated)
			} else if cut != test.cutOut {
				t.Errorf("stdout: cut: got %v, want %v", cut, test.cutOut)
			}
			if cut := e.Stderr != test.stderr; cut != e.StderrTruncated {
				t.Errorf("stderr: cut: got %v, want %v", cut, e.StderrTruncated)
			} else if cut != test.cutErr {
				t.Errorf("stderr: cut: got %v, want %v", cut, test.cutErr)
			}
			if len(e.Stdout)+len(e.Stderr) > maxOutput+1000 {
				t.Errorf("len(e.Stdout)+len(e.Stderr): got %v, want at most %v",
					len(e.Stdout)+len(e.Stderr), maxOutput+1000)
			}
			if !utf8.ValidString(e.Stdout) {
				t.Error("stdout: got broken UTF-8, want valid")
			}
			if !strings.HasPrefix(e.Stdout, "first\n") {
				t.Errorf("e.Stdout: got %.100q, want it to begin with %q", e.Stdout, "first\n")
			}
			if !strings.HasSuffix(e.Stdout, "last\n") {
				t.Errorf("e.Stdout: got the end %q, want %q", e.Stdout[max(0, len(e.Stdout)-100):], "last\n")
			}
			if e.StdoutTruncated && !strings.Contains(e.Stdout, "left out") {
				t.Error("nothing says that something is missing")
			}
		})
	}
}

func TestOutputThatIsNoTextStaysReadable(t *testing.T) {
	e := Describe(ran(strings.Repeat("\x80", 1<<20)+"end", "\xff\n"))
	if !utf8.ValidString(e.Stdout) {
		t.Error("stdout: got broken UTF-8, want valid")
	}
	if !strings.HasSuffix(e.Stdout, "end") {
		t.Errorf("e.Stdout: got the end %q, want %q", e.Stdout[max(0, len(e.Stdout)-100):], "end")
	}
	expect.Equal(t, "e.Stderr", e.Stderr, "\uFFFD\n")
}

func TestEveryCauseIsNamed(t *testing.T) {
	tests := []struct {
		cause   sandbox.Cause
		stopped string
	}{
		{sandbox.Exited, ""}, {sandbox.Crashed, "crash"}, {sandbox.Cancelled, "cancelled"}, {sandbox.TimedOut, "timeout"},
		{sandbox.OutOfFuel, "fuel"}, {sandbox.OutOfMemory, "memory"}, {sandbox.OutOfSpace, ""}, {sandbox.OutputExceeded, "output"},
	}
	for _, test := range tests {
		res := ran("", "")
		res.Exit.Cause = test.cause
		e := Describe(res)
		if e.StoppedBy != test.stopped {
			t.Errorf("%v: e.StoppedBy: got %v, want %v", test.cause, e.StoppedBy, test.stopped)
		}
		if (e.State != "") != (test.stopped != "") {
			t.Errorf("%v: got the state %q, want one: %v", test.cause, e.State, test.stopped != "")
		}
		if want := test.cause == sandbox.Exited; e.Success != want {
			t.Errorf("%v: success: got %v, want %v", test.cause, e.Success, want)
		}
		if got := e.Error == nil; got != e.Success {
			t.Errorf("%v: success is %v, and the error is %v", test.cause, e.Success, e.Error)
		}
	}
}

func TestAnErrorWithoutAMessageIsExplained(t *testing.T) {
	res := ran("", "")
	res.Exit = sandbox.Exit{Cause: sandbox.TimedOut, Code: 130, State: sandbox.Kept, Error: &sandbox.ProgramError{Type: "KeyboardInterrupt", Line: 3}}
	e := Describe(res)
	if text := e.texts()[0]; !strings.Contains(text, "error: KeyboardInterrupt: it was stopped at its time limit (line 3)") {
		t.Errorf("got %q", text)
	}
	res.Exit = sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: &sandbox.ProgramError{Type: "StopIteration"}}
	e = Describe(res)
	if text := e.texts()[0]; text != "error: StopIteration" {
		t.Errorf("got %q", text)
	}
}

func TestManyChangesAreCounted(t *testing.T) {
	res := ran("", "")
	res.Changes = make([]session.Change, 1000)
	if e := Describe(res); len(e.FilesChanged)+e.FilesOmitted != 1000 {
		t.Errorf("len(e.FilesChanged)+e.FilesOmitted: got %v, want 1000", len(e.FilesChanged)+e.FilesOmitted)
	} else if len(e.FilesChanged) > 500 {
		t.Errorf("len(e.FilesChanged): got %v, want at most 500", len(e.FilesChanged))
	}
}

func pngOf(t *testing.T, width, height int) []byte {
	t.Helper()
	return encodePNG(t, image.NewGray(image.Rect(0, 0, width, height)))
}

func encodePNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOnlyPicturesThatClientsCanShowArePassedOn(t *testing.T) {
	small := pngOf(t, 2, 2)
	tests := []struct {
		name    string
		display sandbox.Display
		shown   bool
		problem string
	}{
		{"a png", sandbox.Display{MIME: "image/png", Data: small}, true, ""},
		{"a png that says it is a jpeg", sandbox.Display{MIME: "image/jpeg", Data: small}, false, "no image/jpeg"},
		{"text that says it is a png", sandbox.Display{MIME: "image/png", Data: []byte("hello")}, false, "no image/png"},
		{"nothing that says it is a png", sandbox.Display{MIME: "image/png"}, false, "no image/png"},
		{"a png with half a header", sandbox.Display{MIME: "image/png", Data: small[:20]}, false, "damaged"},
		{"a png that is too wide", sandbox.Display{MIME: "image/png", Data: pngOf(t, 8001, 1)}, false, "8001 x 1"},
		{"a png that is too large", sandbox.Display{MIME: "image/png", Data: append(bytes.Clone(small), make([]byte, maxPictureBytes)...)}, false, "larger than"},
		{"a text", sandbox.Display{MIME: "text/html", Data: []byte("<b>")}, true, ""},
		{"bytes of some other kind", sandbox.Display{MIME: "application/x-thing\n", Data: []byte{0xff}}, false, `"application/x-thing\n" is neither`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			list := showAll("s", "x", []sandbox.Display{test.display}, maxPicturesRoom)
			if len(list) != 1 {
				t.Fatalf("len(list): got %d, want 1: %v", len(list), list)
			}
			if (list[0].image != nil || list[0].Text != "") != test.shown {
				t.Errorf("it is shown: want %v; got %+v", test.shown, list)
			}
			expect.Part(t, "list[0].Problem", list[0].Problem, test.problem)
			if (list[0].Problem == "") != test.shown {
				t.Errorf("the problem is %q", list[0].Problem)
			}
		})
	}
}

func TestManyDisplaysAreBounded(t *testing.T) {
	var all []sandbox.Display
	for range 30 {
		all = append(all, sandbox.Display{MIME: "image/png", Data: pngOf(t, 1, 1)}, sandbox.Display{MIME: "text/html", Data: bytes.Repeat([]byte("x"), 5000)})
	}
	pictures, texts := 0, 0
	for _, s := range showAll("s", "x", all, maxPicturesRoom) {
		if s.image != nil {
			pictures++
		}
		texts += len(s.Text)
	}
	if pictures != maxPictures {
		t.Errorf("pictures: got %v, want %v", pictures, maxPictures)
	}
	if texts > maxDocument+1000 || texts < maxDocument/2 {
		t.Errorf("texts: got %v, want at least %v and at most %v", texts, maxDocument/2, maxDocument+1000)
	}
}

// kinds names the blocks of a result's content.
func kinds(res *mcp.CallToolResult) string {
	var names []string
	for _, c := range res.Content {
		switch c.(type) {
		case *mcp.TextContent:
			names = append(names, "text")
		case *mcp.ImageContent:
			names = append(names, "image")
		case *mcp.EmbeddedResource:
			names = append(names, "resource")
		}
	}
	return strings.Join(names, " ")
}

func TestEachClientGetsTheFormItShows(t *testing.T) {
	picture := sandbox.Display{MIME: "image/png", Data: pngOf(t, 1, 1)}
	page := sandbox.Display{MIME: "text/html", Data: []byte("<b>page</b>")}
	tests := []struct {
		name, client string
		displays     []sandbox.Display
		kinds        string
		structured   bool
	}{
		{"Mastra gets content blocks alone", "mastra", []sandbox.Display{picture, page}, "text image resource", false},
		{"anybody gets everything twice", "anybody", []sandbox.Display{picture, page}, "text image resource", true},
		{"a client without a name too", "", []sandbox.Display{page}, "text resource", true},
		{"Codex gets no structured content with pictures", "codex-mcp-client", []sandbox.Display{picture}, "text image", false},
		{"Codex gets it without pictures", "codex-mcp-client", nil, "text", true},
		{"Codex gets documents as text", "codex-mcp-client", []sandbox.Display{page}, "text text", true},
		{"a bridge keeps the client's name in front", "Codex-MCP-Client (via mcp-remote 1.0)", []sandbox.Display{picture}, "text image", false},
		{"Claude Code keeps pictures beside structured content", "claude-code", []sandbox.Display{picture}, "text image", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, shown := describe(ran("printed\n", "", test.displays...), execution.Filed{})
			a := answer{data: transport.Encoded(e), texts: e.texts(), shown: shown}
			extensions := map[string]any{"io.modelcontextprotocol/ui": map[string]any{"mimeTypes": []any{"text/html;profile=mcp-app"}}}
			if test.client == "mastra" { // its name is its user's to choose
				extensions["io.modelcontextprotocol/ui"] = map[string]any{}
			}
			res := quirksOf(transport.ClientOf(&mcp.Implementation{Name: test.client}, extensions)).result(a)
			if got := kinds(res); got != test.kinds {
				t.Errorf("kinds(res): got %v, want %v", got, test.kinds)
			} else if (res.StructuredContent != nil) != test.structured {
				t.Errorf("it is structured: got %v, want %v", res.StructuredContent != nil, test.structured)
			}
			if res.StructuredContent == nil && test.client != "mastra" {
				var back Execution
				text := res.Content[0].(*mcp.TextContent).Text
				if err := json.Unmarshal([]byte(text), &back); err != nil {
					t.Errorf("the text: got error %v, want none: %s", err, text)
				} else {
					expect.Equal(t, "the text: back.Stdout", back.Stdout, "printed\n")
					expect.Equal(t, "the text: back.SessionID", back.SessionID, "s")
				}
			}
		})
	}
}

// reports collects what progress sends.
type reports struct {
	mu       sync.Mutex
	messages []string
	lines    []int
}

func (r *reports) send(lines float64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages, r.lines = append(r.messages, message), append(r.lines, int(lines))
}

func TestProgressIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reports
		p := newProgress(r.send)
		for range 1000 { // one second
			p.stdout.Write([]byte("tick\n"))
			time.Sleep(time.Millisecond)
		}
		p.stop()
		if n := len(r.messages); n < 10 || n > 22 {
			t.Errorf("there were %d notifications in a second", n)
		}
		if all := strings.Count(strings.Join(r.messages, "\n")+"\n", "tick\n"); all != 1000 {
			t.Errorf("%d of 1000 lines arrived", all)
		}
		for k := 1; k < len(r.lines); k++ {
			if r.lines[k] <= r.lines[k-1] {
				t.Errorf("progress goes from %d to %d", r.lines[k-1], r.lines[k])
			}
		}
	})
}

func TestProgressIsBoundedAndEndsWithStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var r reports
		p := newProgress(func(lines float64, message string) { <-release; r.send(lines, message) })
		for range 100 { // a client that does not read holds up no one
			p.stderr.Write(bytes.Repeat([]byte("y"), 10_000))
			p.stdout.Write([]byte("line\r50%\r100%"))
		}
		close(release)
		p.stop()
		total := 0
		for _, m := range r.messages {
			total += len(m)
		}
		if total > 4*maxReport {
			t.Errorf("total: got %v, want at most %v", total, 4*maxReport)
		}
		if !strings.Contains(strings.Join(r.messages, ""), "[…]") {
			t.Errorf(`strings.Join(r.messages, ""): got %q, want %q in it`, strings.Join(r.messages, ""), "[…]")
		}
	})
}
