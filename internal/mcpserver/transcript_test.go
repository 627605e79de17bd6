package mcpserver

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"paddock/internal/session"
	"paddock/internal/skill"
)

var update = flag.Bool("update", false, "write the transcripts anew from what the server says")

// TestTranscripts plays the client's part of every testdata/*.txtar and
// compares what the server says with the server's part. In a transcript
//
//	> a line that the client sends, byte for byte
//	< a line that the server has sent by the time it waits again
//	+ a time that passes
//	! the client closes its end
//
// and ids that differ from run to run are numbered: SESSION1, EXECUTION1. A line
// "tools: SETS" at a file's top offers these sets in place of the usual ones. The answers
// to initialize, server/discover and tools/list are in testdata/golden ([goldens]).
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("len(files): got 0, want more")
	}
	said := openGoldens(t)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for k := range archive.Files {
				talk := &archive.Files[k]
				t.Run(talk.Name, func(t *testing.T) {
					var got string
					inBubble(t, func(t *testing.T) { got = play(t, said, setsIn(archive.Comment), string(talk.Data)) })
					if *update {
						talk.Data = []byte(got)
					} else if got != string(talk.Data) {
						t.Errorf("the server said something else (-update writes it down):\n%s", differences(string(talk.Data), got))
					}
				})
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if !t.Failed() || *update {
		said.finish()
	}
}

// inBubble runs f in a bubble of synctest. Encoders are kept for the next user,
// with channels that work in the bubble alone where they were made: so the
// first session is made outside, and afterwards nothing is kept.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	m := newServer(t, Config{}, session.Config{}).config.Sessions
	if _, err := m.Create(t.Context(), session.Local, "", session.Settings{}); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, f)
	runtime.GC()
	runtime.GC() // what the first leaves in a sync.Pool is gone now
}

// setsIn are the sets of tools that a transcript's top names; nil: it does not.
func setsIn(comment []byte) []string {
	for line := range strings.Lines(string(comment)) {
		if names, ok := strings.CutPrefix(line, "tools: "); ok {
			return strings.Split(strings.TrimSpace(names), ",")
		}
	}
	return nil
}

// play gives the transcript as it came out.
func play(t *testing.T, g *goldens, tools []string, script string) string {
	config := Config{Version: "1.0.0", Tools: tools}
	if slices.Contains(tools, "skills") {
		config.Skills = skill.NewStore(skill.Config{Dir: t.TempDir()})
	}
	w := serve(t, t.Context(), newServer(t, config, sessionsForTranscripts))
	began, waited := time.Now(), time.Duration(0)
	var b strings.Builder
	n := names{}
	called := map[string]string{} // tools by the ids of their requests
	for line := range strings.Lines(script) {
		kind, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case ">":
			w.send(t, n.realName(text)+"\n")
			noteCall(called, text)
		case "+":
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			waited += d
		case "!":
			w.in.Close()
		case "<":
			continue
		default:
			b.WriteString(line) // a remark
			continue
		}
		b.WriteString(line)
		synctest.Wait()
		for _, said := range inOrder(w.received()) {
			checkResult(t, called, said)
			fmt.Fprintf(&b, "< %s\n", n.stable(g.shorten(tools, said)))
		}
	}
	w.in.Close()
	if err := <-w.ended; err != nil {
		t.Errorf("serving ended with %v", err)
	}
	if time.Since(began) > waited {
		t.Errorf("the end of the input was followed by a wait of %v", time.Since(began)-waited)
	}
	return b.String()
}

// inOrder sorts answers that came together, whose order is not promised.
// Notifications stay where they are.
func inOrder(lines []string) []string {
	isAnswer := func(k int) bool { return strings.HasPrefix(lines[k], `{"jsonrpc":"2.0","id":`) }
	for k := 0; k < len(lines); k++ {
		from := k
		for k < len(lines) && isAnswer(k) {
			k++
		}
		if from < k {
			slices.Sort(lines[from:k])
		}
	}
	return lines
}

func noteCall(called map[string]string, line string) {
	var m struct {
		ID     json.RawMessage
		Params struct{ Name string }
	}
	if json.Unmarshal([]byte(line), &m) == nil && m.Params.Name != "" {
		called[string(m.ID)] = m.Params.Name
	}
}

// checkResult holds the structured content of a tool's result against its schema.
func checkResult(t *testing.T, called map[string]string, line string) {
	t.Helper()
	var m struct {
		ID     json.RawMessage
		Result struct {
			Content           []json.RawMessage
			StructuredContent any
		}
	}
	if json.Unmarshal([]byte(line), &m) != nil || m.Result.Content == nil {
		return // a batch, or no tool's
	}
	if name := called[string(m.ID)]; m.Result.StructuredContent != nil {
		checkSchema(t, outputSchemas(t)[name], m.Result.StructuredContent, name)
	}
}

// names maps ids that differ from run to run to ones that do not, and back.
type names map[string]string

var (
	minted = regexp.MustCompile(`\b(?:s|x)-[a-z2-7]{26}\b`)
	moment = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	onDisk = regexp.MustCompile(`(\\?"bytes\\?":)[1-9]\d*`) // compressed, with what is named by chance
)

func (n names) stable(s string) string {
	s = minted.ReplaceAllStringFunc(s, func(id string) string {
		if n[id] == "" {
			word := map[byte]string{'s': "SESSION", 'x': "EXECUTION"}[id[0]]
			count := 1
			for _, name := range n {
				if strings.HasPrefix(name, word) {
					count++
				}
			}
			n[id] = fmt.Sprint(word, count)
		}
		return n[id]
	})
	return onDisk.ReplaceAllString(moment.ReplaceAllString(s, "TIME"), "${1}BYTES")
}

func (n names) realName(s string) string {
	for id, name := range n {
		s = strings.ReplaceAll(s, name, id)
	}
	return s
}

// differences shows the first line that is not the same.
func differences(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for k := range max(len(a), len(b)) {
		x, y := "(nothing)", "(nothing)"
		if k < len(a) {
			x = a[k]
		}
		if k < len(b) {
			y = b[k]
		}
		if x != y {
			from := 0
			for from < min(len(x), len(y)) && x[from] == y[from] {
				from++
			}
			from = max(0, from-60)
			return fmt.Sprintf("line %d\nwant …%.300s\ngot  …%.300s", k+1, x[min(from, len(x)):], y[min(from, len(y)):])
		}
	}
	return "no difference"
}

// sessionsForTranscripts has small limits, so that they are reached.
var sessionsForTranscripts = session.Config{MemoryBytes: 64 << 20, DiskBytes: 1 << 20}
