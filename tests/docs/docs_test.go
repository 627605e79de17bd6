// Package docs runs what the documents show against the built binary.
package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

const readme = "../../README.md"

// shown are the lines of a document's indented blocks.
func shown(t *testing.T, document string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if code, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    "); ok {
			lines = append(lines, code)
		}
	}
	return lines
}

// checkout is a folder with bin/paddock in it: the one that make built, or a
// fresh one.
func checkout(t *testing.T) string {
	t.Helper()
	dir := sandboxtest.Memory(t)
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sandboxtest.Binary(t), filepath.Join(dir, "bin", "paddock")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTheCommandsOfTheDocuments runs each "$ command" of a document, but for
// make's, and compares what it prints with the lines below it. There … stands for
// anything on its line, and spaces count as one; in a command s-… is the session
// that was named last.
func TestTheCommandsOfTheDocuments(t *testing.T) {
	for document, least := range map[string]int{
		readme:                    4,
		"../../docs/approvals.md": 4,
		"../../docs/terminal.md":  1,
		"../../docs/documents.md": 3,
		"../../docs/habits.md":    28,
		"../../docs/images.md":    6,
		"../../docs/linux.md":     2,
		"../../docs/secrets.md":   4,
		"../../docs/network.md":   1,
		"../../docs/preview.md":   4,
		"../../docs/packages.md":  1,
		"../../docs/servers.md":   4,
		"../../docs/skills.md":    12,
		"../../docs/state.md":     12,
	} {
		t.Run(filepath.Base(document), func(t *testing.T) { runCommands(t, document, least) })
	}
}

var sessionName = regexp.MustCompile(`\bs-[a-z2-7]{26}\b`)

func runCommands(t *testing.T, document string, least int) {
	dir := checkout(t)
	ran, code, session := 0, "0", "s-…"
	lines := shown(t, document)
	for i := 0; i < len(lines); i++ {
		command, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok || strings.HasPrefix(command, "make") {
			continue
		}
		want := ""
		for i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "$ ") && !strings.HasPrefix(lines[i+1], "{") {
			i++
			want += lines[i] + "\n"
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "(exit "+code+"); "+strings.ReplaceAll(command, "s-…", session))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+filepath.Join(dir, "state"))
		got, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		code = strings.TrimPrefix(cmd.ProcessState.String(), "exit status ")
		if !paddocktest.Prints(string(got), want) {
			t.Errorf("$ %s\n%s\n%s has\n%s", command, got, document, want)
		}
		if name := sessionName.FindString(string(got)); name != "" {
			session = name
		}
		ran++
	}
	if ran < least {
		t.Errorf("only %d commands were found", ran)
	}
}

// TestTheCallsOfTheDocuments makes the calls behind each → over stdio, in one
// session for each document, and looks for what stands behind ← in the structured
// result.
func TestTheCallsOfTheDocuments(t *testing.T) {
	for document, least := range map[string]int{readme: 4, "../../docs/data.md": 8} {
		t.Run(filepath.Base(document), func(t *testing.T) { makeCalls(t, document, least) })
	}
}

func makeCalls(t *testing.T, document string, least int) {
	dir := checkout(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "paddock"), "mcp")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+filepath.Join(dir, "state"))
	client := mcp.NewClient(&mcp.Implementation{Name: "readme", Version: "1"}, nil)
	conn, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got map[string]any
	calls := 0
	for _, line := range shown(t, document) {
		if call, ok := strings.CutPrefix(line, "→ "); ok {
			tool, arguments, _ := strings.Cut(call, " ")
			result, err := conn.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got, _ = result.StructuredContent.(map[string]any)
			calls++
		}
		if answer, ok := strings.CutPrefix(line, "← "); ok {
			var want map[string]any
			if err := json.NewDecoder(bytes.NewBufferString(strings.Replace(answer, ", …}", "}", 1))).Decode(&want); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for name, w := range want {
				if !matches(got[name], w) {
					t.Errorf("%s is %.300v, %s has %v", name, got[name], document, w)
				}
			}
		}
	}
	if calls < least {
		t.Errorf("only %d calls were found", calls)
	}
}

// matches compares a value with the one that a document shows, whose text may
// be cut with "…".
func matches(got, shown any) bool {
	begin, cut := strings.CutSuffix(toText(shown), `…"`)
	return toText(got) == toText(shown) || cut && strings.HasPrefix(toText(got), begin)
}

func toText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
