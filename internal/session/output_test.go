package session_test

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// printing is a program that prints so many lines, of which no two are alike.
func printing(lines int) (code, printed string) {
	var b, all strings.Builder
	for n := range lines {
		fmt.Fprintf(&b, "print('line %05d ä')\n", n)
		fmt.Fprintf(&all, "line %05d ä\n", n)
	}
	return b.String(), all.String()
}

func fileOf(t *testing.T, m *session.Manager, id session.ID, path string) string {
	t.Helper()
	tree, done, err := m.Files(alice, id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	c, err := tree.ReadAll(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(c.Data)
}

func TestAllThatIsPrintedIsInAFileAndItsEndsInTheResult(t *testing.T) {
	for _, limit := range []int64{1, 2, 3, 7, 100, 101, 102, 103, 1000, 3900} {
		m := manager(t, session.Config{Limits: sandbox.RunLimits{StdoutBytes: limit, StderrBytes: 10}}, sandboxtest.FakeConfig{})
		id := create(t, m, alice, "")
		code, all := printing(int(min(limit*60/14, 285)))
		r, err := m.Execute(t.Context(), alice, id, session.Request{Code: code})
		s := r.StdoutStream
		if err != nil {
			t.Fatalf("at a limit of %d: got error %v, want none", limit, err)
		}
		expect.Equal(t, fmt.Sprintf("at a limit of %d: s.Bytes", limit), s.Bytes, int64(len(all)))
		expect.Equal(t, fmt.Sprintf("at a limit of %d: r.Exit.StdoutTruncated", limit), r.Exit.StdoutTruncated, true)
		expect.Equal(t, fmt.Sprintf("at a limit of %d: s.Path", limit), s.Path, ".paddock/1-stdout.txt")
		expect.Equal(t, fmt.Sprintf("at a limit of %d: s.Problem", limit), s.Problem, "")
		if t.Failed() {
			t.FailNow()
		}
		mark := fmt.Sprintf("\n[… %d bytes left out …]\n", s.LeftOut)
		begin, end := strings.TrimSuffix(r.Stdout[:s.End], mark), r.Stdout[s.End:]
		if !strings.HasPrefix(all, begin) {
			t.Errorf("at a limit of %d: all: got %q, want it to begin with %q", limit, all, begin)
		}
		if !strings.HasSuffix(all, end) {
			t.Errorf("at a limit of %d: all: got %q, want it to end with %q", limit, all, end)
		}
		expect.Equal(t, fmt.Sprintf("at a limit of %d: begin+mark+end", limit), begin+mark+end, r.Stdout)
		expect.Equal(t, fmt.Sprintf("at a limit of %d: int64(len(begin)+len(end))+s.LeftOut", limit),
			int64(len(begin)+len(end))+s.LeftOut, s.Bytes)
		if kept := int64(len(begin) + len(end)); kept > limit || kept < limit-4 {
			t.Errorf("at a limit of %d %d bytes are kept", limit, kept)
		}
		if got := fileOf(t, m, id, s.Path); got != all {
			t.Errorf("at a limit of %d the file has %d bytes of %d", limit, len(got), len(all))
		}
	}
}

func TestWhatIsMoreThanTheDiskLimitIsKeptInPart(t *testing.T) {
	m := manager(t, session.Config{Limits: sandbox.RunLimits{StdoutBytes: 1000}, DiskBytes: 12 << 10}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	code, _ := printing(1000)
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: code})
	s := r.StdoutStream
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "s.Bytes", s.Bytes, 14_000)
	expect.Part(t, "s.Problem", s.Problem, "disk limit")
	expect.Equal(t, "fileOf(t, m, id, s.Path)", fileOf(t, m, id, s.Path), r.Stdout)
}

func TestAProgramThatPrintsFarBeyondItsLimitIsStopped(t *testing.T) {
	m := manager(t, session.Config{Limits: sandbox.RunLimits{StdoutBytes: 100}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "flood"})
	s := r.StdoutStream
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "r.Exit.Cause", r.Exit.Cause, sandbox.OutputExceeded)
	expect.Equal(t, "s.Bytes", s.Bytes, 6400)
	expect.Equal(t, "len(fileOf(t, m, id, s.Path))", len(fileOf(t, m, id, s.Path)), 6400)
}
