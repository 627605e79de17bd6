package session_test

import (
	"fmt"
	"strings"
	"testing"

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
		if err != nil || s.Bytes != int64(len(all)) || !r.Exit.StdoutTruncated || s.Path != ".paddock/1-stdout.txt" || s.Problem != "" {
			t.Fatalf("at a limit of %d: %+v, %+v, %v", limit, s, r.Exit, err)
		}
		mark := fmt.Sprintf("\n[… %d bytes left out …]\n", s.LeftOut)
		begin, end := strings.TrimSuffix(r.Stdout[:s.End], mark), r.Stdout[s.End:]
		if !strings.HasPrefix(all, begin) || !strings.HasSuffix(all, end) || begin+mark+end != r.Stdout || int64(len(begin)+len(end))+s.LeftOut != s.Bytes {
			t.Errorf("at a limit of %d of %d the result has %q", limit, len(all), r.Stdout)
		}
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
	if err != nil || s.Bytes != 14_000 || !strings.Contains(s.Problem, "disk limit") || fileOf(t, m, id, s.Path) != r.Stdout {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAProgramThatPrintsFarBeyondItsLimitIsStopped(t *testing.T) {
	m := manager(t, session.Config{Limits: sandbox.RunLimits{StdoutBytes: 100}}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "flood"})
	s := r.StdoutStream
	if err != nil || r.Exit.Cause != sandbox.OutputExceeded || s.Bytes != 6400 || len(fileOf(t, m, id, s.Path)) != 6400 {
		t.Errorf("%+v, %+v, %v", s, r.Exit, err)
	}
}
