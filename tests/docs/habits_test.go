package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const habits = "../../docs/habits.md"

// elsewhere are the tests of habits that need a terminal, an index of packages or a person.
var elsewhere = map[string]string{
	"paddock shell":        "TestAShellAtATerminal",
	"paddock repl":         "TestAREPLAtATerminal",
	"paddock run --with":   "TestAProgramGetsItsPackages",
	"paddock run reads.py": "TestAProgramGetsItsPackages",
	"paddock run --watch":  "TestAProgramRunsAgainAfterAChange",
	"paddock uninstall":    "TestScripts",
}

var habitCommand = regexp.MustCompile("^yes: `([^`]+)`$")

// TestTheTableOfHabits holds the table to what runs: each row of paddock's is a command below
// the table or in a named test, or says why there is none.
func TestTheTableOfHabits(t *testing.T) {
	text, err := os.ReadFile(habits)
	if err != nil {
		t.Fatal(err)
	}
	ran := strings.ReplaceAll(strings.Join(shown(t, habits), "\n"), "bin/paddock", "paddock")
	rows, columns := 0, 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		if columns == 0 {
			columns = len(cells)
			continue
		}
		rows++
		if len(cells) != columns {
			t.Errorf("%q has %d cells, want %d", line, len(cells), columns)
			continue
		}
		cell := strings.TrimSpace(cells[1])
		if reason, ok := strings.CutPrefix(cell, "no: "); ok && len(reason) > 10 {
			continue
		}
		command := habitCommand.FindStringSubmatch(cell)
		switch {
		case command == nil:
			t.Errorf("%s: paddock's cell is %q, want yes with a command, or no with a reason", cells[0], cell)
		case elsewhere[command[1]] != "":
			wantTest(t, elsewhere[command[1]])
		case !strings.Contains(ran, command[1]) && !strings.Contains(ran, strings.Replace(command[1], "main.py", "work/main.py", 1)):
			t.Errorf("%s: %q is not among the commands below the table", cells[0], command[1])
		}
	}
	if rows < 30 {
		t.Errorf("there are %d rows", rows)
	}
}

// wantTest looks for a test of the command line.
func wantTest(t *testing.T, name string) {
	t.Helper()
	files, err := filepath.Glob("../../internal/cli/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(") {
			return
		}
	}
	t.Errorf("there is no test %s", name)
}
