package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"paddock/internal/linkfarm"
)

func shared(t *testing.T, s *Store, owner, dir string) []string {
	t.Helper()
	if err := s.Share(t.Context(), owner, dir); err != nil {
		t.Fatal(err)
	}
	return shownIn(t, dir)
}

func TestASharedFolderIsWhatASessionsWouldBe(t *testing.T) {
	s := storeOf(t, nil)
	dir, own := t.TempDir(), t.TempDir()
	steps := []func(){
		func() {},
		func() { save(t, s, "alice", "a-b", "x = 1") },
		func() { save(t, s, "alice", "c", "x = 2"); save(t, s, "bob", "his", "x = 3") },
		func() { save(t, s, "alice", "a-b", "y = 4") },
		func() {
			if err := s.Remove("alice", "c"); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if err := s.Remove("alice", "a-b"); err != nil {
				t.Fatal(err)
			}
		},
	}
	for k, step := range steps {
		step()
		got, want := shared(t, s, "alice", dir), provided(t, s, "alice", own)
		if !slices.Equal(got, want) {
			t.Fatalf("after step %d there are %v, and should be %v", k, got, want)
		}
		for _, name := range got {
			a, errA := os.ReadFile(filepath.Join(dir, name))
			b, errB := os.ReadFile(filepath.Join(own, name))
			if errA != nil {
				t.Fatalf("after step %d %s: errA: got error %v, want none", k, name, errA)
			}
			if errB != nil {
				t.Fatalf("after step %d %s: errB: got error %v, want none", k, name, errB)
			}
			if string(a) != string(b) {
				t.Errorf("after step %d %s: a: got %q, want %q", k, name, string(a), string(b))
			}
		}
	}
}

func TestASharedFolderCanBeReadByEverybody(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	s := storeOf(t, nil)
	dir := t.TempDir()
	save(t, s, "alice", "mine", "x = 1")
	shared(t, s, "alice", dir)
	save(t, s, "alice", "mine", "x = 2")
	shared(t, s, "alice", dir)
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		info, err := d.Info()
		if want := fs.FileMode(0o444); err == nil && (info.Mode().Perm()&want != want || info.Mode().Perm()&0o022 != 0 || d.IsDir() && info.Mode().Perm() != 0o755) {
			t.Errorf("%s has %v", at, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Where nothing has changed, there is no wait.
func TestASharedFolderThatIsUpToDateNeedsNoLock(t *testing.T) {
	s := storeOf(t, nil)
	dir := t.TempDir()
	save(t, s, "alice", "mine", "x = 1")
	shared(t, s, "alice", dir)
	unlock, err := s.lock("alice")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	shared(t, s, "alice", dir)
}

func TestASharedFolderMends(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"a module is gone":            func(dir string) error { return os.Remove(filepath.Join(dir, "a_b.py")) },
		"a folder is gone":            func(dir string) error { return os.RemoveAll(filepath.Join(dir, "a-b")) },
		"the code is gone":            func(dir string) error { return os.RemoveAll(filepath.Join(dir, library)) },
		"the index is gone":           func(dir string) error { return os.Remove(filepath.Join(dir, indexFile)) },
		"nobody knows what it is of":  func(dir string) error { return os.Remove(filepath.Join(dir, linkfarm.Stamp)) },
		"what it is of is damaged":    func(dir string) error { return os.WriteFile(filepath.Join(dir, linkfarm.Stamp), []byte("{"), 0o644) },
		"there is a stranger":         func(dir string) error { return os.WriteFile(filepath.Join(dir, "evil.py"), nil, 0o644) },
		"there is a stranger in code": func(dir string) error { return os.Mkdir(filepath.Join(dir, library, "evil"), 0o755) },
		"somebody was cut short":      func(dir string) error { return os.MkdirAll(filepath.Join(dir, ".tmp-x", "before", "a-b"), 0o755) },
		"an earlier paddock made it": func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, linkfarm.Stamp))
			text := strings.ReplaceAll(string(data), layoutVersion+"-", "0-")
			text = strings.ReplaceAll(text, `"generation":"`+layoutVersion, `"generation":"0`)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, linkfarm.Stamp), []byte(text), 0o644),
				os.Remove(filepath.Join(dir, "a_b.py")), os.WriteFile(filepath.Join(dir, "a_b.py"), []byte("old"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOf(t, nil)
			dir := t.TempDir()
			save(t, s, "alice", "a-b", "x = 1")
			want := shared(t, s, "alice", dir)
			module, err := os.ReadFile(filepath.Join(dir, "a_b.py"))
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if got := shared(t, s, "alice", dir); !slices.Equal(got, want) {
				t.Errorf("there are %v, and were %v", got, want)
			}
			if now, err := os.ReadFile(filepath.Join(dir, "a_b.py")); err != nil {
				t.Errorf("the module: got error %v, want none", err)
			} else if string(now) != string(module) {
				t.Errorf("the module: got %q, want %q", string(now), string(module))
			}
			if _, err := os.Stat(filepath.Join(dir, library, "evil")); err == nil {
				t.Error("the stranger stays")
			}
		})
	}
}

// A writer that is cut short between a change and its note leaves nothing that passes for another version.
func TestASharedFolderThatWasCutShortIsMadeAnew(t *testing.T) {
	s := storeOf(t, nil)
	dir := t.TempDir()
	save(t, s, "alice", "a", "x = 1")
	save(t, s, "alice", "b", "x = 1")
	want := shared(t, s, "alice", dir)
	save(t, s, "alice", "a", "x = 2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Share(ctx, "alice", dir); !errors.Is(err, context.Canceled) {
		t.Fatalf("it gives %v", err)
	}
	// Somebody got as far as this, and the skill is what it was.
	code := filepath.Join(dir, library, "a", "lib")
	if err := os.RemoveAll(code); err != nil {
		t.Fatal(err)
	}
	save(t, s, "alice", "a", "x = 1")
	if got := shared(t, s, "alice", dir); !slices.Equal(got, want) {
		t.Errorf("there are %v, and were %v", got, want)
	}
}

func TestADamagedSkillIsLeftOutOfSharedFolders(t *testing.T) {
	s := storeOf(t, nil)
	dir := t.TempDir()
	save(t, s, "alice", "good", "x = 1")
	save(t, s, "alice", "bad", "x = 2")
	shared(t, s, "alice", dir)
	bad := save(t, s, "alice", "bad", "x = 3")
	if err := os.WriteFile(filepath.Join(s.dir("alice", bad.Record), MainFile), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Share(t.Context(), "alice", dir); !errors.Is(err, ErrDamaged) {
			t.Errorf("it gives %v", err)
		}
		if there := shownIn(t, dir); !slices.Contains(there, "good.py") {
			t.Errorf("shownIn(t, dir): got %q, want %q among them", there, "good.py")
		} else if slices.ContainsFunc(there, func(name string) bool { return strings.HasPrefix(name, "bad") }) {
			t.Errorf("there are %v", there)
		}
	}
	save(t, s, "alice", "bad", "x = 3")
	if there := shared(t, s, "alice", dir); !slices.Contains(there, "bad.py") {
		t.Errorf("after it was saved again there are %v", there)
	}
}

// What a program finds while others bring the folder up to date, in several processes,
// is of one version, or not there.
func TestWhoReadsASharedFolderFindsASkillAsItWasOrIs(t *testing.T) {
	place, dir := t.TempDir(), t.TempDir()
	stores := []*Store{NewStore(Config{Dir: place}), NewStore(Config{Dir: place})}
	save(t, stores[0], "alice", "mine", "x = 'v0'")
	shared(t, stores[0], "alice", dir)
	var writers, readers sync.WaitGroup
	ended := make(chan struct{})
	for k, s := range stores {
		writers.Go(func() {
			for n := range 6 {
				if _, err := s.Save("alice", "mine", "", fmt.Sprintf("x = 'v%d-%d'", k, n), "x", nil); err != nil {
					t.Error(err)
				}
				if err := s.Share(t.Context(), "alice", dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	found := 0
	readers.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			if readsWhole(t, dir) {
				found++
			}
		}
	})
	writers.Wait()
	close(ended)
	readers.Wait()
	if found == 0 {
		t.Error("the skill was never there")
	}
	got, want := shared(t, stores[0], "alice", dir), provided(t, stores[1], "alice", t.TempDir())
	if !slices.Equal(got, want) {
		t.Errorf("in the end there are %v", got)
	}
}

// readsWhole reads a skill as who has its folder open; false: it is not there.
func readsWhole(t *testing.T, dir string) bool {
	if data, err := os.ReadFile(filepath.Join(dir, "mine.py")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the module: got error %v, want none or that it does not exist", err)
	} else if err == nil && !strings.HasSuffix(string(data), "\n") {
		t.Errorf("the module: got %q, want whole lines", data)
	}
	root, err := os.OpenRoot(filepath.Join(dir, library, "mine"))
	if err != nil {
		return false
	}
	defer root.Close()
	var versions []string
	for _, name := range []string{"lib/__init__.py", "lib/snippet_1.py"} {
		data, err := root.ReadFile(name)
		if err != nil {
			return false // it is on its way out
		}
		_, version, _ := strings.Cut(string(data), "x = ")
		versions = append(versions, strings.TrimSpace(version))
	}
	if versions[0] != versions[1] {
		t.Errorf("one folder: versions[0]: got %v, want %v", versions[0], versions[1])
	}
	if versions[0] == "" {
		t.Error("one folder: versions[0]: got none, want one")
	}
	return true
}

// What is known of paddock's own skills is not found out again.
func TestWrittenDigestsAreBelievedUntilASkillIsShown(t *testing.T) {
	folder := fstest.MapFS{MainFile: {Data: []byte(mainOf("words"))}}
	in, err := ReadBuiltin("words", folder, "")
	if err != nil {
		t.Fatal(err)
	}
	place, dir := t.TempDir(), t.TempDir()
	one := NewStore(Config{Dir: place, Builtin: func() []*Installed { return []*Installed{in} }, BuiltinDigests: []string{in.Digest}})
	want := shared(t, one, "alice", dir)
	if !slices.Contains(want, "words.py") {
		t.Errorf("there are %v", want)
	}
	next := NewStore(Config{Dir: place, BuiltinDigests: []string{in.Digest}, Builtin: func() []*Installed {
		t.Error("they were read")
		return nil
	}})
	if got := shared(t, next, "alice", dir); !slices.Equal(got, want) {
		t.Errorf("there are %v", got)
	}

	lie := digestPrefix + strings.Repeat("0", 64)
	bad, err := ReadBuiltin("words", folder, lie)
	if err != nil {
		t.Fatal(err)
	}
	if bad.Digest != lie {
		t.Fatalf("bad.Digest: got %v, want %v", bad.Digest, lie)
	}
	wrong := NewStore(Config{Dir: place, Builtin: func() []*Installed { return []*Installed{bad} }, BuiltinDigests: []string{lie}})
	if err := wrong.Share(t.Context(), "alice", dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("a digest of something else gives %v", err)
	}
}

// Who provides for a session waits for others as long as its run does, and comes in
// turn: a program without its skills fails.
func TestWhoProvidesWaitsForOthersAndComesInTurn(t *testing.T) {
	s := storeOf(t, nil)
	save(t, s, "alice", "mine", "x = 1")
	dir := t.TempDir()
	unlock, err := s.lock("alice")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the run was cancelled")
	given := make(chan error)
	go func() { given <- s.Provide(ctx, "alice", dir) }()
	s.turns.wait(t, "alice", 2)
	cancel(gone)
	if err := <-given; !errors.Is(err, gone) {
		t.Errorf("after its run it gives %v", err)
	}
	var order []int
	var all sync.WaitGroup
	for k := range 5 {
		all.Go(func() {
			unlock, err := s.lockIn(t.Context(), "alice")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, k) // the lock guards it
			unlock()
		})
		s.turns.wait(t, "alice", k+2)
	}
	if leave, err := s.turns.take(t.Context(), "bob"); err != nil {
		t.Error(err)
	} else {
		leave() // another owner's
	}
	unlock()
	all.Wait()
	if !slices.IsSorted(order) {
		t.Errorf("they came in the order %v", order)
	}
	if len(order) != 5 {
		t.Errorf("they came in the order: len(order): got %d, want 5: %v", len(order), order)
	}
	if err := s.Provide(t.Context(), "alice", dir); err != nil {
		t.Errorf("afterwards: got error %v, want none", err)
	} else if len(s.turns.lines) != 0 {
		t.Errorf("afterwards: s.turns.lines: got %v, want none", s.turns.lines)
	}
}

// wait waits until so many are in an owner's line.
func (t *turns) wait(of *testing.T, owner string, n int) {
	of.Helper()
	for {
		t.mu.Lock()
		there := len(t.lines[owner])
		t.mu.Unlock()
		if there >= n {
			return
		}
		runtime.Gosched()
	}
}
