package wasm_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// cell is one program and what has to come of it.
type cell struct {
	code     string
	language string
	out      string // all of standard output, without the last line break
	err      string // is contained in standard error
	result   string
	fails    string // type: message; the message may end with … where only its begin counts
	line     int
	hint     string // is contained in the hint
	exit     int
}

// anyLine is a cell's line that does not matter.
const anyLine = -1

func TestJavaScriptPrograms(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	for name, cells := range javascriptPrograms {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, owners, "o/"+strings.ReplaceAll(name, " ", "_"))
			in := startIn(t, b, "javascript", dir)
			for _, c := range cells {
				c.run(t, in)
			}
		})
	}
}

func (c cell) run(t *testing.T, in sandbox.Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	exit, err := in.Run(ctx, sandbox.Command{Code: c.code, Language: c.language, Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatalf("%s\n%v", c.code, err)
	}
	fails, hint, line := "", "", 0
	if exit.Error != nil {
		fails, hint, line = exit.Error.Type+": "+exit.Error.Message, exit.Error.Hint, exit.Error.Line
	}
	if begin, cut := strings.CutSuffix(c.fails, "…"); cut && strings.HasPrefix(fails, begin) {
		fails = c.fails
	}
	switch {
	case fails != c.fails:
		t.Errorf("%s\nfails with %q, not %q\n%s", c.code, fails, c.fails, &stderr)
	case strings.TrimSuffix(stdout.String(), "\n") != c.out:
		t.Errorf("%s\nprints\n%s\nnot\n%s\n%s", c.code, &stdout, c.out, &stderr)
	case exit.Result != c.result:
		t.Errorf("%s\nhas the result %q, not %q", c.code, exit.Result, c.result)
	case !strings.Contains(stderr.String(), c.err):
		t.Errorf("%s\nprints to stderr\n%s\nnot\n%s", c.code, &stderr, c.err)
	case line != c.line && c.line != anyLine:
		t.Errorf("%s\nfails in line %d, not %d\n%s", c.code, line, c.line, &stderr)
	case !strings.Contains(hint, c.hint):
		t.Errorf("%s\nhas the hint %q, not %q", c.code, hint, c.hint)
	case exit.Code != c.exit && !(c.exit == 0 && c.fails != "" && exit.Code == 1):
		t.Errorf("%s\nexits with %d, not %d", c.code, exit.Code, c.exit)
	case exit.State != sandbox.Kept:
		t.Errorf("%s\nloses the interpreter's state", c.code)
	}
}
