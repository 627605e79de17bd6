// Package examples runs the commands of each README.md below examples/ against the built
// binary, as a reader types them.
package examples

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
	"paddock/tests/paddocktest"
)

const (
	folder  = "../../examples"
	address = "127.0.0.1:5555" // of paddock serve, in the examples
)

// needs are what examples need of this machine, beside what all of them do.
var needs = map[string]struct {
	programs []string
	linux    bool // isolation linux
	npm      bool // Node, and the packages of tests/mcp in the place of npm install's
}{
	"agent-http":       {programs: []string{"curl", "python3"}},
	"agent-typescript": {npm: true},
	"ci":               {programs: []string{"curl"}},
	"notebook":         {programs: []string{"python3"}},
	"tools-as-code":    {npm: true},
	"web-preview":      {programs: []string{"curl"}, linux: true},
}

// TestTheExamples runs the commands of each example in one shell, in a copy of its folder
// and with a state folder of its own, and compares what they print.
func TestTheExamples(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		ran++
		if !strings.Contains(string(index), "]("+e.Name()+")") {
			t.Errorf("examples/README.md does not list %s", e.Name())
		}
		t.Run(e.Name(), func(t *testing.T) {
			x := open(t, e.Name())
			commands := x.readme(t)
			if len(commands) == 0 {
				t.Error("the README has no commands")
			}
			for i, got := range x.run(t, commands) {
				if c := commands[i]; !paddocktest.Prints(got, c.prints) {
					t.Errorf("$ %s\n%s\nthe README has\n%s", c.line, got, c.prints)
				}
			}
		})
	}
	if ran < len(needs) {
		t.Errorf("there are %d examples, want at least %d", ran, len(needs))
	}
}

// example is a copy of an example's folder.
type example struct {
	dir string
	env []string
}

// open copies an example. In the copy paddock serve is at a port of its own.
func open(t *testing.T, name string) *example {
	t.Helper()
	need := needs[name]
	for _, program := range append([]string{"bash"}, need.programs...) {
		_, err := exec.LookPath(program)
		sandboxtest.Require(t, program, err == nil, "it is not in the path")
	}
	paddocktest.Require(t, "wasm")
	if need.linux {
		paddocktest.Require(t, "linux")
	}
	dir := sandboxtest.Memory(t)
	x := &example{dir: filepath.Join(dir, name)}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sandboxtest.Binary(t), filepath.Join(bin, "paddock")); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	x.copy(t, filepath.Join(folder, name), strings.NewReplacer(address, "127.0.0.1:"+port))
	path := bin
	if need.npm {
		packages := suite.Install(t)
		if err := os.Symlink(filepath.Join(packages.Dir, "node_modules"), filepath.Join(x.dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		path += string(os.PathListSeparator) + packages.Bin("")
	}
	x.env = paddocktest.Environment(t, filepath.Join(dir, "state"),
		"PADDOCK_TRANSPORT_HTTP_PORT="+port, "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
	return x
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (x *example) copy(t *testing.T, from string, changed *strings.Replacer) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(x.dir, name)
		switch {
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case d.IsDir():
			return os.Mkdir(to, 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(changed.Replace(string(text))), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// command is a line that a reader types, and what the document says that it prints.
type command struct{ line, prints string }

// readme gives the commands of an example's document, but for npm's: what is printed ends
// with the next command, or with the indented block.
func (x *example) readme(t *testing.T) (commands []command) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(x.dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var now *command
	for line := range strings.Lines(string(text)) {
		code, indented := strings.CutPrefix(line, "    ")
		typed, isCommand := strings.CutPrefix(code, "$ ")
		switch {
		case !indented:
			now = nil
		case isCommand && strings.HasPrefix(typed, "npm "):
			now = &command{}
		case isCommand:
			commands = append(commands, command{line: strings.TrimSpace(typed)})
			now = &commands[len(commands)-1]
		case now != nil:
			now.prints += code
		}
	}
	return commands
}

// run has one shell run commands, and gives what each printed, on stdout and stderr.
func (x *example) run(t *testing.T, commands []command) (printed []string) {
	t.Helper()
	out := t.TempDir()
	script := "trap 'kill $(jobs -p) 2>&-' EXIT\n"
	for i, c := range commands {
		script += fmt.Sprintf("{\n%s\n} > %s 2>&1 < /dev/null\n", c.line, filepath.Join(out, fmt.Sprint(i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), paddocktest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = x.dir, x.env
	inGroup(cmd)
	if said, err := cmd.CombinedOutput(); cmd.ProcessState == nil || ctx.Err() != nil {
		t.Errorf("the commands did not end: %v: %s", err, said)
	} else if len(said) > 0 {
		t.Errorf("the shell says %s", said)
	}
	for i := range commands {
		text, err := os.ReadFile(filepath.Join(out, fmt.Sprint(i)))
		if err != nil {
			t.Errorf("$ %s\nit was not run: %v", commands[i].line, err)
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n') // as the next prompt would show it
		}
		printed = append(printed, string(text))
	}
	return printed
}
