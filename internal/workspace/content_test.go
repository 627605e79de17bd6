package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

func TestReadCountsATextsLinesAndOtherFilesBytes(t *testing.T) {
	tree, dir := open(t, 1<<30)
	put(t, dir, "three", "one\ntwo\nthree\n")
	put(t, dir, "open", "one\ntwo")
	put(t, dir, "empty", "")
	put(t, dir, "binary", "\x00\x01\x02\x03")
	put(t, dir, "latin", "caf\xe9")
	put(t, dir, "long", strings.Repeat("é", workspace.MaxRead))
	put(t, dir, "cut", strings.Repeat("x", 64<<10-1)+"é\n")
	type shape struct {
		text, more        bool
		first, lines, all int64
	}
	for _, c := range []struct {
		name, path         string
		r                  workspace.Range
		want               string
		text, more         bool
		first, lines, all_ int64
	}{
		{"a whole text", "three", workspace.Range{}, "one\ntwo\nthree\n", true, false, 1, 3, 3},
		{"one line", "three", workspace.Range{Offset: 2, Limit: 1}, "two\n", true, true, 2, 1, 3},
		{"the rest", "three", workspace.Range{Offset: 2}, "two\nthree\n", true, false, 2, 2, 3},
		{"a limit beyond the end", "three", workspace.Range{Offset: 3, Limit: 1 << 62}, "three\n", true, false, 3, 1, 3},
		{"an offset beyond the end", "three", workspace.Range{Offset: 9}, "", true, false, 9, 0, 3},
		{"a last line without an end", "open", workspace.Range{}, "one\ntwo", true, false, 1, 2, 2},
		{"an empty file", "empty", workspace.Range{}, "", true, false, 1, 0, 0},
		{"a text in bytes", "three", workspace.Range{Offset: 4, Limit: 3, Bytes: true}, "two", true, true, 0, 0, 0},
		{"a binary file", "binary", workspace.Range{Offset: 1, Limit: 2}, "\x01\x02", false, true, 0, 0, 0},
		{"another encoding is binary", "latin", workspace.Range{}, "caf\xe9", false, false, 0, 0, 0},
		{"bytes beyond the end", "binary", workspace.Range{Offset: 99}, "", false, false, 0, 0, 0},
		{"a line that is too long is cut at a character", "long", workspace.Range{}, strings.Repeat("é", workspace.MaxRead/2), true, true, 1, 1, 1},
		{"a character across the first 64 KiB is text", "cut", workspace.Range{Offset: 2}, "", true, false, 2, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := tree.Read(c.path, c.r)
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Data) != c.want {
				t.Errorf("read %d bytes %.40q, want %d bytes %.40q", len(got.Data), got.Data, len(c.want), c.want)
			}
			have := shape{got.Text, got.More, got.FirstLine, got.Lines, got.TotalLines}
			if want := (shape{c.text, c.more, c.first, c.lines, c.all_}); have != want {
				t.Errorf("what it tells of the text is %+v, want %+v", have, want)
			}
		})
	}
	for _, c := range []struct {
		name, path string
		r          workspace.Range
		want       fault.Kind
	}{
		{"a file that is not there", "none", workspace.Range{}, fault.NotFound},
		{"a file below a file", "three/x", workspace.Range{}, fault.Invalid},
		{"a negative offset", "three", workspace.Range{Offset: -1}, fault.Invalid},
	} {
		t.Run(c.name+" is a fault", func(t *testing.T) {
			_, err := tree.Read(c.path, c.r)
			wantKind(t, err, c.want)
		})
	}
}

func TestAFolderIsNotReadOrWritten(t *testing.T) {
	tree, dir := open(t, 1<<20)
	put(t, dir, "d/f", "x")
	_, err := tree.Read("d", workspace.Range{})
	wantKind(t, err, fault.Invalid)
	_, err = tree.Write("d", nil)
	wantKind(t, err, fault.Invalid)
	_, err = tree.Write("d/f/g", nil)
	wantKind(t, err, fault.Invalid)
}

func TestReadAllRefusesWhatIsTooLarge(t *testing.T) {
	tree, dir := open(t, 1<<20)
	put(t, dir, "f", "12345")
	switch c, err := tree.ReadAll("f", 5); {
	case err != nil:
		t.Error(err)
	case string(c.Data) != "12345":
		t.Errorf(`c.Data = %q, want "12345"`, string(c.Data))
	case !c.Text:
		t.Errorf("c.Text = false, want true: %q", c.Data)
	}
	_, err := tree.ReadAll("f", 4)
	wantKind(t, err, fault.Exhausted)
}

func TestWriteReplacesAFileWhole(t *testing.T) {
	tree, dir := open(t, 1<<20)
	put(t, dir, "script.sh", "old and longer")
	if err := os.Chmod(filepath.Join(dir, "script.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := tree.Write("/workspace/script.sh", []byte("new"))
	switch {
	case err != nil:
		t.Fatal(err)
	case f.Path != "script.sh":
		t.Fatalf(`f.Path = %q, want "script.sh"`, f.Path)
	case f.Size != 3:
		t.Fatalf("f.Size = %v, want 3: %+v", f.Size, f)
	}
	got, err := os.ReadFile(filepath.Join(dir, "script.sh"))
	if err != nil {
		t.Fatalf("wrote: got error %v, want none", err)
	}
	if string(got) != "new" {
		t.Errorf("wrote: got %q, want %q", string(got), "new")
	}
	if info, err := os.Stat(filepath.Join(dir, "script.sh")); err != nil {
		t.Error(err)
	} else if info.Mode().Perm()&0o100 == 0 && filepath.Separator == '/' {
		t.Errorf("the mode: got %v, want it to be executable", info.Mode())
	}
	if names, err := os.ReadDir(dir); err != nil {
		t.Error(err)
	} else if len(names) != 1 {
		t.Errorf("len(names): got %d, want 1: %v", len(names), names)
	}
}

func TestWriteKeepsToTheDiskLimit(t *testing.T) {
	tree, dir := open(t, 16<<10)
	for _, c := range []struct {
		name, path string
		size       int
		want       fault.Kind
	}{
		{"one large file fits", "a", 8 << 10, ""},
		{"a second one does not", "b", 9 << 10, fault.Exhausted},
		{"a small one counts as four KiB", "c", 1, ""},
		{"a folder counts too", "d/e", 1, fault.Exhausted},
		{"the last one fits", "f", 4 << 10, ""},
		{"nothing more does", "g", 0, fault.Exhausted},
		{"replacing by something smaller always works", "a", 10, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tree.Write(c.path, make([]byte, c.size))
			wantKind(t, err, c.want)
		})
	}
	put(t, dir, "big", strings.Repeat("x", 32<<10))
	if _, err := tree.Write("a", nil); err != nil {
		t.Errorf("what does not grow is refused beyond the limit: %v", err)
	}
	closed, _ := open(t, 0)
	_, err := closed.Write("a", nil)
	wantKind(t, err, fault.Exhausted)
}

func TestEditReplacesExactlyWhatWasMeant(t *testing.T) {
	for _, c := range []struct {
		name, text, old, new string
		all                  bool
		want                 string
		count                int
		kind                 fault.Kind
		says                 string
	}{
		{"one place", "a b c", "b", "x", false, "a x c", 1, "", ""},
		{"all places", "b b b", "b", "x", true, "x x x", 3, "", ""},
		{"deleting", "a b", " b", "", false, "a", 1, "", ""},
		{"lines that end in CRLF", "a\r\nb\r\nc", "a\nb", "x\ny", false, "x\r\ny\r\nc", 1, "", ""},
		{"a text that is not there", "a", "b", "x", false, "a", 0, fault.NotFound, ""},
		{"a text with other white space", "if x:\n\treturn 1\n", "if x:\n    return 1", "x", false, "if x:\n\treturn 1\n", 0, fault.NotFound, "line 1"},
		{"a text that is there twice", "b\nb", "b", "x", false, "b\nb", 0, fault.Conflict, "lines 1, 2"},
		{"nothing to replace", "a", "", "x", false, "a", 0, fault.Invalid, ""},
		{"nothing to change", "a", "a", "a", false, "a", 0, fault.Invalid, ""},
		{"a binary file", "a\x00", "a", "b", false, "a\x00", 0, fault.Invalid, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree, dir := open(t, 1<<20)
			put(t, dir, "f", c.text)
			n, err := tree.Edit("f", c.old, c.new, c.all)
			wantKind(t, err, c.kind)
			if n != c.count {
				t.Errorf("replaced %d times, want %d", n, c.count)
			}
			if f := fault.Of(err); f != nil && !strings.Contains(f.Message+f.Hint, c.says) {
				t.Errorf("%q, %q do not say %q", f.Message, f.Hint, c.says)
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "f")); string(got) != c.want {
				t.Errorf("left %q, want %q", got, c.want)
			}
		})
	}
}

func TestSearchFindsLinesInTexts(t *testing.T) {
	tree, dir := open(t, 1<<30)
	put(t, dir, "a.py", "import os\n\ndef main():\r\n    pass\n")
	put(t, dir, "d/b.py", "def other(): pass")
	put(t, dir, "bin", "def \x00")
	put(t, dir, "long.txt", strings.Repeat("é", 500)+"needle"+strings.Repeat("é", 500))
	for _, c := range []struct{ name, pattern, glob, want string }{
		{"in all files", `^def (\w+)`, "", "a.py:3:def main(): d/b.py:1:def other(): pass"},
		{"in some files", "def", "d/**", "d/b.py:1:def other(): pass"},
		{"nothing", "absent", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := tree.Search(t.Context(), c.pattern, c.glob, 0)
			if err != nil {
				t.Fatal(err)
			}
			if m.More {
				t.Fatal("m.More: got true, want false")
			}
			if got := render(m); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("a binary file is skipped and counted", func(t *testing.T) {
		m, err := tree.Search(t.Context(), "def", "", 0)
		switch {
		case err != nil:
			t.Error(err)
		case m.Skipped != 1:
			t.Errorf("m.Skipped = %v, want 1: %+v", m.Skipped, m)
		case m.Files != 3:
			t.Errorf("m.Files = %v, want 3: %+v", m.Files, m)
		}
	})
	t.Run("a long line is cut around the hit", func(t *testing.T) {
		m, err := tree.Search(t.Context(), "needle", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Matches) != 1 {
			t.Fatalf("len(m.Matches): got %d, want 1: %v", len(m.Matches), m.Matches)
		}
		switch s := m.Matches[0].Text; {
		case len(s) > 310:
			t.Errorf("len(s) = %d, want at most 310", len(s))
		case !strings.Contains(s, "needle"):
			t.Errorf(`s = %q, want "needle" in it`, s)
		case !strings.HasPrefix(s, "…é"):
			t.Errorf(`s = %q, want prefix "…é"`, s)
		case !strings.HasSuffix(s, "é…"):
			t.Errorf(`s = %q, want suffix "é…"`, s)
		}
	})
	t.Run("no more than the limit", func(t *testing.T) {
		m, err := tree.Search(t.Context(), ".", "", 2)
		switch {
		case err != nil:
			t.Error(err)
		case len(m.Matches) != 2:
			t.Errorf("len(m.Matches) = %d, want 2: %+v", len(m.Matches), m.Matches)
		case !m.More:
			t.Errorf("m.More = false, want true: %+v", m)
		}
	})
	t.Run("a malformed expression is a fault", func(t *testing.T) {
		_, err := tree.Search(t.Context(), "(?=x)", "", 0)
		wantKind(t, err, fault.Invalid)
	})
	t.Run("a cancelled search ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tree.Search(ctx, "x", "", 0); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func render(m workspace.Matches) string {
	var b bytes.Buffer
	for k, x := range m.Matches {
		if k > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(x.Path + ":" + string(rune('0'+x.Line)) + ":" + x.Text)
	}
	return b.String()
}
