package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

func open(t *testing.T, dir string) *Line {
	t.Helper()
	l, err := Open(dir, blob.OS)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// filled is a line of n checkpoints, the last of which has a label.
func filled(t *testing.T, dir string, n int) *Line {
	t.Helper()
	l := open(t, dir)
	for k := range n {
		m := &Manifest{Owner: "alice", Session: "s", Previous: int64(k), Cause: "execute", Code: fmt.Sprint("x = ", k)}
		if k == n-1 {
			m.Label = "last"
		}
		m.Interpreters = map[string]Interpreter{"python": {State: []byte{1, 2}, Layers: []blob.Ref{{Size: int64(k)}}, Variables: []Variable{{"x", "int", fmt.Sprint(k)}}}}
		if err := l.Append(m, nil, nil); err != nil {
			t.Fatal(err)
		}
		switch {
		case m.Number != int64(k+1):
			t.Fatalf("m.Number = %v, want %v: %+v", m.Number, int64(k+1), m)
		case m.Of != m.Number:
			t.Fatalf("m.Of = %v, want %v: %+v", m.Of, m.Number, m)
		case m.Bytes == 0:
			t.Fatalf("m.Bytes = %v, want other than 0: %+v", m.Bytes, m)
		}
	}
	return l
}

func usable(*Manifest) error { return nil }

func TestALineIsReadAsItWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	filled(t, dir, 12)
	l := open(t, dir)
	switch {
	case l.Len() != 12:
		t.Errorf("l.Len() = %v, want 12: %+v", l.Len(), l)
	case l.Labels() != 1:
		t.Errorf("l.Labels() = %v, want 1: %+v", l.Labels(), l)
	case !l.Labelled(12):
		t.Errorf("l.Labelled(12) = false, want true: %+v", l)
	case l.Labelled(11):
		t.Errorf("l.Labelled(11) = true, want false: %+v", l)
	case l.Next() != 13:
		t.Errorf("l.Next() = %v, want 13: %+v", l.Next(), l)
	}
	m, err := l.Get(11)
	switch {
	case err != nil:
		t.Error(err)
	case m.Code != "x = 10":
		t.Errorf(`m.Code = %q, want "x = 10"`, m.Code)
	case m.Previous != 10:
		t.Errorf("m.Previous = %v, want 10: %+v", m.Previous, m)
	case m.Interpreters["python"].Variables[0].Preview != "10":
		t.Errorf(`m.Interpreters["python"].Variables[0].Preview = %q, want "10"`,
			m.Interpreters["python"].Variables[0].Preview)
	case m.Interpreters["python"].Layers[0].Size != 10:
		t.Errorf(`m.Interpreters["python"].Layers[0].Size = %v, want 10: %+v`,
			m.Interpreters["python"].Layers[0].Size, m)
	}
	head, skipped, err := l.Head(usable)
	switch {
	case err != nil:
		t.Errorf("the head: %v", err)
	case skipped != nil:
		t.Errorf("the head: skipped = %v, want nil: %+v", skipped, head)
	case head.Number != 12:
		t.Errorf("the head: head.Number = %v, want 12: %+v, %v", head.Number, head, skipped)
	case head.Label != "last":
		t.Errorf(`the head: head.Label = %q, want "last"`, head.Label)
	}
	if _, err := l.Get(77); fault.KindOf(err) != fault.NotFound {
		t.Errorf("%v", err)
	}
}

func TestAnEmptyOrMissingFolderIsAnEmptyLine(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "nowhere"))
	head, skipped, err := l.Head(usable)
	switch {
	case err != nil:
		t.Error(err)
	case l.Len() != 0:
		t.Errorf("l.Len() = %v, want 0; %+v, %v, %v, %v", l.Len(), l, head, skipped, err)
	case l.Next() != 1:
		t.Errorf("l.Next() = %v, want 1; %+v, %v, %v, %v", l.Next(), l, head, skipped, err)
	case head != nil:
		t.Errorf("head = %v, want nil: %+v, %v", head, l, skipped)
	case skipped != nil:
		t.Errorf("skipped = %v, want nil: %+v, %v", skipped, l, head)
	}
}

func TestADamagedHeadIsSkippedAndToldOf(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"cut":            func(b []byte) []byte { return b[:len(b)-1] },
		"longer":         func(b []byte) []byte { return append(b, 0) },
		"a bit":          func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"its checksum":   func(b []byte) []byte { b[len(magic)] ^= 1; return b },
		"something else": func([]byte) []byte { return []byte("hello") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, 3)
			path := filepath.Join(dir, "3.kept")
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, damage(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			l := open(t, dir)
			head, skipped, err := l.Head(usable)
			switch {
			case err != nil:
				t.Error(err)
			case head == nil:
				t.Errorf("head is nil, want a value: %v", skipped)
			case head.Number != 2:
				t.Errorf("head.Number = %v, want 2: %+v, %v", head.Number, head, skipped)
			case !errors.Is(skipped, ErrDamaged):
				t.Errorf("error %v, want %v", skipped, ErrDamaged)
			}
			if l.Next() != 4 {
				t.Errorf("the next one is %d: a number is used once", l.Next())
			}
		})
	}
}

func TestAHeadWhoseBlobsAreMissingIsSkippedAndADiskThatFailsIsAnError(t *testing.T) {
	l := filled(t, t.TempDir(), 3)
	head, skipped, err := l.Head(func(m *Manifest) error {
		if m.Number == 3 {
			return fmt.Errorf("looking: %w", blob.ErrMissing)
		}
		return nil
	})
	switch {
	case err != nil:
		t.Error(err)
	case head.Number != 2:
		t.Errorf("head.Number = %v, want 2: %+v, %v", head.Number, head, skipped)
	case !errors.Is(skipped, blob.ErrMissing):
		t.Errorf("error %v, want %v", skipped, blob.ErrMissing)
	}
	if head, _, err := l.Head(func(*Manifest) error { return errors.New("input/output error") }); err == nil {
		t.Errorf("the head is %+v, although the disk failed", head)
	}
}

func TestANewerManifestIsRefusedAndNotSkipped(t *testing.T) {
	dir := t.TempDir()
	l := filled(t, dir, 2)
	data, err := encode(&Manifest{Version: Version + 1, Number: 3, Of: 3})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "3"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(t, dir).Head(usable); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("%v", err)
	}
	_ = l
	if _, err := decode([]byte("paddock checkpoint 2 and so on")); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("%v", err)
	}
}

func TestWhatIsRemovedIsGoneAndItsNumberIsNotUsedAgain(t *testing.T) {
	dir := t.TempDir()
	l := filled(t, dir, 4)
	if err := l.Remove(1, 3, 4, 99); err != nil {
		t.Fatal(err)
	}
	switch got := l.Numbers(); {
	case !slices.Equal(got, []int64{2}):
		t.Errorf("got = %v, want %v", got, []int64{2})
	case l.Labels() != 0:
		t.Errorf("l.Labels() = %v, want 0: %v", l.Labels(), got)
	case l.Next() != 5:
		t.Errorf("l.Next() = %v, want 5: %v", l.Next(), got)
	}
	if err := RemoveAll(dir, blob.OS); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := RemoveAll(dir, blob.OS); err != nil {
		t.Errorf("twice: %v", err)
	}
}

func TestEachVisitsAllThatCanBeRead(t *testing.T) {
	dir := t.TempDir()
	filled(t, filepath.Join(dir, "one"), 2)
	filled(t, filepath.Join(dir, "two"), 3)
	if err := os.WriteFile(filepath.Join(dir, "two", "2"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := Each(dir, blob.OS, func(*Manifest, bool) error { n++; return nil }); err != nil || n != 4 {
		t.Errorf("%d were visited, %v", n, err)
	}
	no := errors.New("no")
	if err := Each(dir, blob.OS, func(*Manifest, bool) error { return no }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if err := Each(filepath.Join(dir, "nowhere"), blob.OS, nil); err != nil {
		t.Error(err)
	}
}

func TestRefsAreAllThatIsNeeded(t *testing.T) {
	m := &Manifest{
		Trees:        map[string]blob.Ref{"workspace": {Size: 1}, "tmp": {Size: 2}},
		Interpreters: map[string]Interpreter{"python": {Layers: []blob.Ref{{Size: 4}, {Size: 8}}}, "javascript": {Layers: []blob.Ref{{Size: 16}}}},
	}
	sum := int64(0)
	for r := range m.Refs() {
		sum += r.Size
	}
	if sum != 31 {
		t.Errorf("the sizes add up to %d", sum)
	}
	c := m.Clone()
	delete(c.Trees, "tmp")
	delete(c.Interpreters, "python")
	if len(m.Trees) != 2 || len(m.Interpreters) != 2 {
		t.Error("a clone shares its maps")
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range []*Manifest{{Version: 1, Number: 1, Of: 1}, {Version: 1, Number: 3, Of: 2, Previous: 1, Code: "x"}} {
		data, err := encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode(data)
		if err != nil {
			return
		}
		again, err := encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err != nil || back.Number != m.Number {
			t.Errorf("%+v, %v", back, err)
		}
	})
}
