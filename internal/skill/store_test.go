package skill

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
	"paddock/internal/expect"
	"paddock/internal/fault"
)

// second is the example as it is later.
func second(name string) []File {
	files := example(name)
	files[1].Data = []byte("#!/bin/sh\necho changed\n")
	files = slices.Delete(files, 2, 3)
	return append(files, File{Path: "scripts/new.py", Data: []byte("print(1)\n")})
}

// versions serves both under one URL.
func versions(t *testing.T, web *site, name string, files []File) string {
	t.Helper()
	web.put("/"+name+".tar.gz", tarGz(t, entriesOf(name+"/", files)...))
	return web.URL + "/" + name + ".tar.gz"
}

func TestASecondInstallationUpdatesAndSaysWhatChanged(t *testing.T) {
	web := newSite(t)
	now := time.Unix(1_700_000_000, 0).UTC()
	s := NewStore(Config{Dir: t.TempDir(), Transport: reach(t), Now: func() time.Time { return now }})
	url := versions(t, web, "words", example("words"))
	first, err := s.Install(t.Context(), "alice", source(t, url, false))
	if err != nil {
		t.Fatalf("the first: got error %v, want none", err)
	}
	if first.Diff != nil {
		t.Fatalf("the first: first.Diff: got %+v, want nil", first.Diff)
	}
	want := Provenance{Kind: Archive, Text: url, Commit: commit, Origin: "https:" + strings.TrimPrefix(web.URL, "http://"), At: now}
	if first.Source != want {
		t.Errorf("first.Source: got %v, want %v", first.Source, want)
	}
	if first.Digest != folderOf(t, example("words")...).Digest() {
		t.Errorf("first.Digest: got %v, want %v", first.Digest, folderOf(t, example("words")...).Digest())
	}
	same, err := s.Install(t.Context(), "alice", source(t, url, false))
	if err != nil {
		t.Fatalf("the same again: got error %v, want none", err)
	}
	if same.Diff == nil {
		t.Fatal("the same again: same.Diff: got nil, want one")
	}
	expect.Equal(t, "the same again: same.Diff.Same()", same.Diff.Same(), true)
	if len(same.Diff.Added)+len(same.Diff.Changed)+len(same.Diff.Removed) > 0 {
		t.Errorf("the same again: len(same.Diff.Added)+len(same.Diff.Changed)+len(same.Diff.Removed): got %v, want 0",
			len(same.Diff.Added)+len(same.Diff.Changed)+len(same.Diff.Removed))
	}
	versions(t, web, "words", second("words"))
	next, err := s.Install(t.Context(), "alice", source(t, url, false))
	if err != nil {
		t.Fatalf("an update: got error %v, want none", err)
	}
	expect.Equal(t, "an update: next.Diff.Added, next.Diff.Changed, next.Diff.Removed",
		fmt.Sprint(next.Diff.Added, next.Diff.Changed, next.Diff.Removed), "[scripts/new.py] [scripts/run.sh] [references/REFERENCE.md]")
	expect.Equal(t, "an update: next.Diff.Before", next.Diff.Before, first.Digest)
	expect.Equal(t, "an update: next.Diff.After", next.Diff.After, next.Digest)
	expect.Equal(t, "an update: next.Diff.Same()", next.Diff.Same(), false)
	got, err := s.Open("alice", "words")
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "got.Digest", got.Digest, next.Digest)
	expect.Equal(t, "paths(got.Skill.Folder)",
		paths(got.Skill.Folder), "SKILL.md assets/logo.bin scripts/new.py scripts/run.sh*")
	for _, f := range second("words") {
		name := filepath.Join(s.dir("alice", next.Record), filepath.FromSlash(f.Path))
		data, err := os.ReadFile(name)
		info, statErr := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if statErr != nil {
			t.Fatalf("statErr: got error %v, want none", statErr)
		}
		expect.Equal(t, "data", string(data), string(f.Data))
		if runtime.GOOS != "windows" && f.Executable != (info.Mode()&0o100 != 0) {
			t.Errorf("%s: got the mode %v, want executable: %v", f.Path, info.Mode(), f.Executable)
		}
	}
	if _, err := os.Stat(s.dir("alice", first.Record)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what nobody uses is there: %v", err)
	}
	if _, err := s.Open("alice", "words"); err != nil {
		t.Error(err)
	}
}

func TestAPinHolds(t *testing.T) {
	web := newSite(t)
	s := storeOf(t, web)
	url := versions(t, web, "words", example("words"))
	pin := "#sha256=" + strings.TrimPrefix(folderOf(t, example("words")...).Digest(), digestPrefix)
	if _, err := s.Install(t.Context(), "alice", source(t, url+pin, false)); err != nil {
		t.Error(err)
	}
	versions(t, web, "words", second("words"))
	if _, err := s.Install(t.Context(), "alice", source(t, url+pin, false)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("what is not pinned: got %v, want one of kind %v", err, fault.Conflict)
	} else if !strings.Contains(fault.Of(err).Hint, folderOf(t, second("words")...).Digest()) {
		t.Errorf("what is not pinned: fault.Of(err).Hint: got %q, want %q in it",
			fault.Of(err).Hint, folderOf(t, second("words")...).Digest())
	}
	if got, err := s.Open("alice", "words"); err != nil {
		t.Error(err)
	} else if got.Digest != folderOf(t, example("words")...).Digest() {
		t.Errorf("got.Digest: got %v, want %v", got.Digest, folderOf(t, example("words")...).Digest())
	}
}

func TestNobodyTakesAnothersName(t *testing.T) {
	web, evil := newSite(t), newSite(t)
	s := storeOf(t, web)
	if _, err := s.Install(t.Context(), "alice", source(t, versions(t, web, "words", example("words")), false)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save("alice", "mine", "", "def f(): pass", "Does nothing.", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(t.Context(), "alice", source(t, versions(t, evil, "words", second("words")), false)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("another site's gives %v", err)
	}
	if _, err := s.Install(t.Context(), "alice", source(t, versions(t, evil, "mine", example("mine")), false)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("one over what was saved gives %v", err)
	}
	if _, err := s.Save("alice", "words", "", "evil()", "Counts words.", nil); fault.KindOf(err) != fault.Conflict {
		t.Errorf("what a model writes gives %v", err)
	}
	if got, err := s.Open("alice", "words"); err != nil {
		t.Error(err)
	} else if got.Digest != folderOf(t, example("words")...).Digest() {
		t.Errorf("got.Digest: got %v, want %v", got.Digest, folderOf(t, example("words")...).Digest())
	}
	if err := s.Remove("alice", "words"); err != nil {
		t.Error(err)
	}
	if _, err := s.Install(t.Context(), "alice", source(t, versions(t, evil, "words", second("words")), false)); err != nil {
		t.Errorf("after it was removed: %v", err)
	}
	for _, owner := range []string{"bob", "../alice", ""} {
		if list, err := s.List(owner); err != nil {
			t.Errorf("%q: got error %v, want none", owner, err)
		} else if len(list) != 0 {
			t.Errorf("%q: got %v, want none", owner, list)
		}
		if _, err := s.Open(owner, "words"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("%q opens it: %v", owner, err)
		}
	}
}

func TestWhatAModelSavesIsASkill(t *testing.T) {
	s := storeOf(t, nil)
	code := "def shout(text):\n    \"\"\"```\n    ```` \"\"\"\n    return text.upper()\n"
	saved, err := s.Save("alice", "shout-it", "", code, "Shouts: \"loud\" # not\n", []string{"text", "fun"})
	if err != nil {
		t.Fatal(err)
	}
	if saved.Diff != nil {
		t.Fatalf("saved.Diff: got %+v, want nil", saved.Diff)
	}
	got, err := s.Open("alice", "shout-it")
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "got.Skill.Description", got.Skill.Description, `Shouts: "loud" # not`)
	expect.Equal(t, `got.Metadata["paddock.tags"]`, got.Metadata["paddock.tags"], "text fun")
	expect.Equal(t, "got.Source.Kind", got.Source.Kind, Saved)
	if t.Failed() {
		t.FailNow()
	}
	if f := fences(got.Skill.Instructions, pythonNames); len(f) != 1 {
		t.Errorf("its code: len(f): got %d, want 1: %v", len(f), f)
	} else if f[0].code != code {
		t.Errorf("its code: f[0].code: got %q, want %q", f[0].code, code)
	}
	if fmt.Sprint(got.Manifest) != fmt.Sprint(Manifest{}) {
		t.Errorf("it declares %+v", got.Manifest)
	}
	if again, err := s.Save("alice", "shout-it", "", code+"x = 1\n", "Shouts.", nil); err != nil {
		t.Errorf("a second time: got error %v, want none", err)
	} else if again.Diff == nil {
		t.Error("a second time: again.Diff: got nil, want one")
	} else if again.Diff.Same() {
		t.Error("a second time: again.Diff.Same(): got true, want false")
	}
	if js, err := s.Save("alice", "js", "javascript", "export const a = 1", "A.", nil); err != nil {
		t.Errorf("JavaScript: got error %v, want none", err)
	} else if len(fences(js.Skill.Instructions, scriptNames)) != 1 {
		t.Errorf("JavaScript: len(fences(js.Skill.Instructions, scriptNames)): got %d, want 1: %v",
			len(fences(js.Skill.Instructions, scriptNames)), fences(js.Skill.Instructions, scriptNames))
	}
	for name, save := range map[string]func() (*Result, error){
		"a bad name":     func() (*Result, error) { return s.Save("alice", "../x", "", "a", "b", nil) },
		"no code":        func() (*Result, error) { return s.Save("alice", "x", "", " \n", "b", nil) },
		"no description": func() (*Result, error) { return s.Save("alice", "x", "", "a", " ", nil) },
		"much":           func() (*Result, error) { return s.Save("alice", "x", "", strings.Repeat("a", maxCode+1), "b", nil) },
		"a long story":   func() (*Result, error) { return s.Save("alice", "x", "", "a", strings.Repeat("b", 1025), nil) },
		"a bad tag":      func() (*Result, error) { return s.Save("alice", "x", "", "a", "b", []string{"a b"}) },
		"a language":     func() (*Result, error) { return s.Save("alice", "x", "ruby", "a", "b", nil) },
		"a NUL":          func() (*Result, error) { return s.Save("alice", "x", "", "a\x00", "b", nil) },
		"no JavaScript":  func() (*Result, error) { return s.Save("alice", "x", "javascript", "function (", "b", nil) },
	} {
		if got, err := save(); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s gives %+v, %v", name, got, err)
		}
	}
}

func TestUsesAreCounted(t *testing.T) {
	s := storeOf(t, nil)
	for _, name := range []string{"b", "a"} {
		if _, err := s.Save("alice", name, "", "x = 1", "Nothing.", nil); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			if err := s.Used("alice", "a", k%2 == 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := s.List("alice")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 {
		t.Fatalf("len(list): got %d, want 2: %v", len(list), list)
	}
	expect.Equal(t, "list[0].Name", list[0].Name, "a")
	expect.Equal(t, "list[0].Counts.Used", list[0].Counts.Used, 8)
	expect.Equal(t, "list[0].Counts.Succeeded", list[0].Counts.Succeeded, 4)
	expect.Equal(t, "list[0].Counts.Last.IsZero()", list[0].Counts.Last.IsZero(), false)
	expect.Equal(t, "list[1].Counts", list[1].Counts, (Counts{}))
	if _, err := s.Save("alice", "a", "", "x = 2", "Nothing.", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Open("alice", "a"); err != nil {
		t.Errorf("after an update: got error %v, want none", err)
	} else if got.Counts.Used != 8 {
		t.Errorf("after an update: got.Counts.Used: got %v, want 8", got.Counts.Used)
	}
	if err := s.Used("alice", "none", true); fault.KindOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
	if err := s.Remove("alice", "a"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("alice", "a"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a second time gives %v", err)
	}
	if _, err := s.Save("alice", "a", "", "x = 2", "Nothing.", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Open("alice", "a"); err != nil {
		t.Errorf("a new one: got error %v, want none", err)
	} else if got.Counts.Used != 0 {
		t.Errorf("a new one: got.Counts.Used: got %v, want 0", got.Counts.Used)
	}
	few := NewStore(Config{Dir: s.config.Dir, Skills: 2})
	if _, err := few.Save("alice", "c", "", "x", "Nothing.", nil); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("a third gives %v", err)
	}
}

func TestADamagedSkillIsNotServedAndCanBeInstalledAgain(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, s *Store, r Record) error{
		"a file that changed": func(_ *testing.T, s *Store, r Record) error {
			return os.WriteFile(filepath.Join(s.dir("alice", r), "scripts", "run.sh"), []byte("evil"), 0o700)
		},
		"a file that is longer": func(_ *testing.T, s *Store, r Record) error {
			return os.WriteFile(filepath.Join(s.dir("alice", r), MainFile), []byte(mainOf("words")+strings.Repeat("x", 5000)), 0o600)
		},
		"a file that is gone": func(_ *testing.T, s *Store, r Record) error {
			return os.Remove(filepath.Join(s.dir("alice", r), MainFile))
		},
		"all files gone": func(_ *testing.T, s *Store, r Record) error { return os.RemoveAll(s.dir("alice", r)) },
		"a record of nonsense": func(_ *testing.T, s *Store, r Record) error {
			return os.WriteFile(filepath.Join(s.folder("alice", recordsFolder), "words.json"), []byte("{"), 0o600)
		},
		"a record that leads out": func(_ *testing.T, s *Store, r Record) error {
			name := filepath.Join(s.folder("alice", recordsFolder), "words.json")
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, []byte(strings.ReplaceAll(string(data), "scripts/run.sh", "../../../lock")), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			web := newSite(t)
			s := storeOf(t, web)
			from := source(t, versions(t, web, "words", example("words")), false)
			first, err := s.Install(t.Context(), "alice", from)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(t, s, first.Record); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Open("alice", "words"); !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v, want %v", err, ErrDamaged)
			} else if fault.Of(err).Hint == "" {
				t.Error("fault.Of(err).Hint: got none, want one")
			}
			if _, err := s.Install(t.Context(), "alice", from); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Open("alice", "words"); err != nil {
				t.Errorf("afterwards: got error %v, want none", err)
			} else if got.Digest != first.Digest {
				t.Errorf("afterwards: got.Digest: got %v, want %v", got.Digest, first.Digest)
			}
		})
	}
}

// Wherever an installation is cut short there is the old skill or the new one,
// whole, and a later installation works.
func TestACrashLeavesTheOldSkillOrTheNewOne(t *testing.T) {
	web := newSite(t)
	old, fresh := folderOf(t, example("words")...).Digest(), folderOf(t, second("words")...).Digest()
	transport := reach(t)
	for _, first := range []bool{true, false} {
		for n := 1; ; n++ {
			root := t.TempDir()
			disk, err := blobtest.New(root)
			if err != nil {
				t.Fatal(err)
			}
			s := NewStore(Config{Dir: filepath.Join(root, "skills"), Files: disk, Transport: transport})
			url := versions(t, web, "words", example("words"))
			if !first {
				if _, err := s.Install(t.Context(), "alice", source(t, url, false)); err != nil {
					t.Fatal(err)
				}
			}
			versions(t, web, "words", second("words"))
			disk.SetFault(blobtest.From(disk.Ops()+n, blobtest.ErrCut))
			_, err = s.Install(t.Context(), "alice", source(t, url, false))
			finished := err == nil
			if err := disk.Cut(rand.New(rand.NewPCG(uint64(n), 7))); err != nil {
				t.Fatal(err)
			}
			got, err := s.Open("alice", "words")
			switch {
			case err == nil && got.Digest == fresh:
			case err == nil && got.Digest == old && !first && !finished:
			case fault.KindOf(err) == fault.NotFound && first && !finished:
			default:
				t.Fatalf("cut at operation %d (first: %v, finished: %v) there is %+v, %v", n, first, finished, got, err)
			}
			if again, err := s.Install(t.Context(), "alice", source(t, url, false)); err != nil {
				t.Fatalf("after a cut at %d: got error %v, want none", n, err)
			} else if again.Digest != fresh {
				t.Fatalf("after a cut at %d: again.Digest: got %v, want %v", n, again.Digest, fresh)
			}
			for _, folder := range []string{"", recordsFolder, treesFolder} {
				entries, err := os.ReadDir(s.folder("alice", folder))
				if err != nil {
					t.Fatalf("after a cut at %d %q: got error %v, want none", n, folder, err)
				}
				if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), blob.TempPrefix) }) {
					t.Fatalf("after a cut at %d %q: got %v, want no temporary files", n, folder, entries)
				}
			}
			if finished {
				if n < 10 {
					t.Errorf("it has only %d operations", n)
				}
				break
			}
		}
	}
}

func TestAFullDiskChangesNothing(t *testing.T) {
	web := newSite(t)
	root := t.TempDir()
	disk, err := blobtest.New(root)
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(Config{Dir: filepath.Join(root, "skills"), Files: disk, Transport: reach(t)})
	url := versions(t, web, "words", example("words"))
	first, err := s.Install(t.Context(), "alice", source(t, url, false))
	if err != nil {
		t.Fatal(err)
	}
	versions(t, web, "words", second("words"))
	for n := range 6 {
		disk.SetFault(blobtest.FullFrom(disk.Ops() + 1 + 5*n))
		_, err := s.Install(t.Context(), "alice", source(t, url, false))
		disk.SetFault(nil)
		got, openErr := s.Open("alice", "words")
		if err == nil {
			t.Fatalf("it fits: %d", n)
		}
		if fault.KindOf(err) != fault.Exhausted {
			t.Fatalf("%d: got %v, want one of kind %v", n, err, fault.Exhausted)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d: got %v, want %v", n, err, syscall.ENOSPC)
		}
		if openErr != nil {
			t.Fatalf("%d: openErr: got error %v, want none", n, openErr)
		}
		if got.Digest != first.Digest {
			t.Errorf("%d: got.Digest: got %v, want %v", n, got.Digest, first.Digest)
		}
	}
}

func TestTwoStoresInstallAtOnce(t *testing.T) {
	web := newSite(t)
	dir := t.TempDir()
	transport := reach(t)
	urls := []string{versions(t, web, "a", example("a")), versions(t, web, "b", example("b"))}
	var all sync.WaitGroup
	for k := range 6 {
		s := NewStore(Config{Dir: dir, Transport: transport})
		all.Go(func() {
			if _, err := s.Install(t.Context(), "alice", source(t, urls[k%2], false)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := NewStore(Config{Dir: dir})
	if list, err := s.List("alice"); err != nil {
		t.Error(err)
	} else if len(list) != 2 {
		t.Errorf("len(list): got %d, want 2: %v", len(list), list)
	}
}
